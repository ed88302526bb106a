"""The options of programs that decode sets of cuts."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, Tuple

from jsonargparse import ArgumentParser, Namespace

from icefall_attn.errors import UserError
from icefall_attn.training.experiment import Experiment


def add_set_options(parser: ArgumentParser) -> None:
    """What is decoded, how it is loaded and what errors are counted in."""
    parser.add_argument(
        "--cuts", nargs="+", required=True, help="sets to decode, each as NAME=FILE"
    )
    parser.add_argument(
        "--num-workers",
        type=int,
        help="processes that load data; default: as in training",
    )
    parser.add_argument(
        "--unit",
        choices=["word", "char"],
        default="word",
        help="count errors in words or in characters",
    )


def parse_sets(values: List[str]) -> List[Tuple[str, str]]:
    """``NAME=FILE`` options as pairs.

    Raises:
      UserError: a value without a name, a name that cannot be part of a file name or
        comes twice.
    """
    sets: List[Tuple[str, str]] = []
    for value in values:
        name, _, path = value.partition("=")
        if not name or not path:
            raise UserError(f"--cuts takes NAME=FILE, not '{value}'")
        if "/" in name or "\t" in name:
            raise UserError(f"set name '{name}' would not make a file name")
        if name in dict(sets):
            raise UserError(f"set '{name}' is given twice")
        if not Path(path).is_file():
            raise UserError(f"cuts of set '{name}': no file {path}")
        sets.append((name, path))
    return sets


def open_sets(options: Namespace, experiment: Experiment) -> Dict[str, Any]:
    """A loader of each set; all are opened before the first is decoded, so that a wrong file is told at once."""
    from icefall_attn.data.loader import eval_loader

    data = experiment.config.data
    if options.num_workers is not None:
        cache = data.cache and options.num_workers == 0
        data = replace(data, num_workers=options.num_workers, cache=cache)
    return {
        name: eval_loader(path, data, experiment.tokenizer, options.max_duration)
        for name, path in parse_sets(options.cuts)
    }

"""What the programs that use a trained model have in common on their command lines."""

from pathlib import Path
from typing import List, Optional

from jsonargparse import SUPPRESS, ArgumentParser, Namespace

from icefall_attn.decoding import SearchConfig
from icefall_attn.errors import UserError
from icefall_attn.training.experiment import Experiment, load_experiment

#: Of the options that choose a model; those that were not given tell what goes together.
DEFAULTS = {"avg": 1, "by": "valid-loss", "checkpoint": None, "epoch": None}


def search_parser(prog: str, description: str, *skip: str) -> ArgumentParser:
    """A parser with the options of a program that searches: an experiment, a device and a search.

    Args:
      skip: options of the search that the program has not.
    """
    parser = ArgumentParser(
        prog=prog, description=description, exit_on_error=False, allow_abbrev=False
    )
    parser.add_argument(
        "--exp-dir",
        required=True,
        help="experiment directory; it holds the model's options",
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_class_arguments(SearchConfig, "search", skip=set(skip))
    return parser


def add_max_duration(parser: ArgumentParser, default: float) -> None:
    """The size of batches."""
    parser.add_argument(
        "--max-duration",
        type=float,
        default=default,
        help="seconds of audio in a batch",
    )


def experiment_parser(
    prog: str, description: str, max_duration: Optional[float] = None
) -> ArgumentParser:
    """A `search_parser` with the options that choose a model.

    Args:
      max_duration: default of the option of that name, of programs that have it.
    """
    parser = search_parser(prog, description)
    # Without defaults, so that one sees what was given beside --checkpoint.
    parser.add_argument(
        "--avg", type=int, default=SUPPRESS, help="epochs to average (default: 1)"
    )
    parser.add_argument(
        "--by",
        choices=["valid-loss", "epoch", "running-mean"],
        default=SUPPRESS,
        help="average those with the lowest validation loss, the last ones, or all steps of the"
        " last ones (default: valid-loss)",
    )
    parser.add_argument(
        "--epoch",
        type=int,
        default=SUPPRESS,
        help="the last epoch to look at (default: of all)",
    )
    parser.add_argument(
        "--checkpoint",
        default=SUPPRESS,
        help="one file of the experiment instead, for example last.pt",
    )
    if max_duration is not None:
        add_max_duration(parser, max_duration)
    return parser


def parse(parser: ArgumentParser, arguments: Optional[List[str]]) -> Namespace:
    """Parses, with any mistake as one line.

    Raises:
      UserError: what jsonargparse complains of.
    """
    try:
        return parser.parse_args(arguments)
    except Exception as error:  # ArgumentError, TypeError and more, by version
        raise UserError(" ".join(str(error).split())) from None


def parse_experiment(
    parser: ArgumentParser, arguments: Optional[List[str]]
) -> Namespace:
    """Parses the command line of an `experiment_parser`.

    Raises:
      UserError: bad options.
    """
    options = parse(parser, arguments)
    if "checkpoint" in options:
        for name in ("avg", "by", "epoch"):
            if name in options:
                raise UserError(
                    f"--checkpoint {options.checkpoint} is one model alone; leave out"
                    f" --{name} {options[name]}"
                )
        if Path(options.checkpoint).name != options.checkpoint:
            raise UserError(
                f"--checkpoint must be a file name inside --exp-dir, not"
                f" '{options.checkpoint}'"
            )
    check_max_duration(options)
    for name, default in DEFAULTS.items():
        if name not in options:
            options[name] = default
    return options


def check_max_duration(options: Namespace) -> None:
    """Raises `UserError` if batches would hold nothing."""
    if "max_duration" in options and not options.max_duration > 0:
        raise UserError(f"--max-duration must be above 0, not {options.max_duration}")


def load_chosen(options: Namespace) -> Experiment:
    """The model that a parsed command line chooses."""
    choice = (options.avg, options.by, options.checkpoint, options.epoch)
    return load_experiment(options.exp_dir, *choice)


def search_config(options: Namespace) -> SearchConfig:
    """The checked search options of a parsed command line."""
    config = SearchConfig(**vars(options.search))
    config.validate()
    return config

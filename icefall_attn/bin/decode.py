"""Decodes sets of cuts with a trained model and reports word error rates.

Usage:

    icefall-attn-decode --exp-dir exp --avg 5 --search.method modified_beam_search \
        --cuts dev=data/fbank/an4_cuts_dev.jsonl.gz test=data/fbank/an4_cuts_test.jsonl.gz

Results go to ``exp/METHOD/``: recogs, errs and wer-summary files in icefall's formats, n-best
lists as JSON lines, and a log.
"""

import logging
import sys
from datetime import datetime
from pathlib import Path
from typing import List, Optional

from icefall_attn.bin.options import (
    experiment_parser,
    load_chosen,
    parse_experiment,
    search_config,
)
from icefall_attn.bin.sets import add_set_options, open_sets, parse_sets
from icefall_attn.decoding import word_graph
from icefall_attn.decoding.recognizer import Search
from icefall_attn.decoding.sets import Decoded, decode_set
from icefall_attn.decoding.streaming import check_streamable
from icefall_attn.device import choose_device
from icefall_attn.errors import UserError, run_main
from icefall_attn.files import remove_leftovers
from icefall_attn.scoring import Score, result_paths, result_suffix
from icefall_attn.scoring.results import write_results


def main(arguments: Optional[List[str]] = None) -> None:
    """Decodes one set after the other.

    Raises:
      UserError: bad options, missing files.
    """
    options = _parse(arguments)
    config = search_config(options)
    parse_sets(options.cuts)  # before the model is loaded
    device = choose_device(options.device)

    experiment = load_chosen(options)
    graph = word_graph(config, experiment.tokenizer.tokens, device)
    piece = 0
    if options.streaming or options.simulate_streaming:
        check_streamable(config)
        experiment.model.init_stream(1)
        piece = options.piece // 10 if options.streaming else 0
        how = f"streaming-{options.piece}ms" if piece else "simulated-streaming"
        experiment = experiment._replace(name=f"{experiment.name}_{how}")
    suffix = result_suffix(experiment.name, config)
    directory = Path(options.exp_dir) / config.method
    remove_leftovers(directory)
    _start_log(directory, suffix)
    logging.info("options: %s", options)
    model = experiment.model.to(device)
    for name, loader in open_sets(options, experiment).items():
        (decoded,) = decode_set(
            model, loader, [Search(config, graph)], device, name, piece
        )
        about = (options.exp_dir, name, experiment.name, config)
        result, _ = write_results(decoded, *about, experiment.tokenizer, options.unit)
        errs = result_paths(*about).errs
        _report(result, decoded, f"{name}-{config.method}", errs)


def _parse(arguments: Optional[List[str]]):
    parser = experiment_parser(
        "icefall-attn-decode", "Decodes cuts and reports word error rates.", 600.0
    )
    add_set_options(parser)
    parser.add_argument(
        "--streaming",
        type=bool,
        default=False,
        help="decode utterances as streams, many at a time, piece by piece",
    )
    parser.add_argument(
        "--piece", type=int, default=320, help="--streaming: ms of a piece"
    )
    parser.add_argument(
        "--simulate-streaming",
        type=bool,
        default=False,
        help="decode a model that can stream in one pass, whose results are those of --streaming",
    )
    options = parse_experiment(parser, arguments)
    if options.streaming and options.simulate_streaming:
        raise UserError("--streaming and --simulate-streaming do not go together")
    if options.piece < 10:
        raise UserError(f"--piece must be 10 ms or more, not {options.piece}")
    return options


def _start_log(directory: Path, suffix: str) -> None:
    """Logs to a file of its own and, warnings only, to stderr."""
    from icefall_attn.environment import environment_report

    directory.mkdir(parents=True, exist_ok=True)
    date = datetime.now().strftime("%Y-%m-%d-%H-%M-%S")
    file = logging.FileHandler(
        directory / f"log-decode-{suffix}-{date}", encoding="utf-8"
    )
    console = logging.StreamHandler(sys.stderr)
    console.setLevel(logging.WARNING)
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(message)s",
        handlers=[file, console],
        force=True,
    )
    for line in environment_report().splitlines():
        logging.info(line)


def _report(result: Score, decoded: Decoded, label: str, errs: Path) -> None:
    line = result.console_line(label)
    logging.info(line)
    logging.info(
        "%d utterances, %.1f s of audio in %.1f s: real-time factor %.4f",
        len(decoded.references),
        decoded.audio,
        decoded.seconds,
        decoded.rtf,
    )
    logging.info("errors are listed in %s", errs)
    if result.missing:
        logging.warning(
            "%d utterances have no hypothesis and count as deleted: %s",
            len(result.missing),
            " ".join(result.missing),
        )
    print(line, flush=True)


def cli() -> None:
    """Entry point of ``icefall-attn-decode``."""
    run_main(main)


if __name__ == "__main__":
    cli()

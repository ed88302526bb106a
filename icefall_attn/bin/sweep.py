"""Decodes with every mean of checkpoints that a training offers: last epoch by number averaged.

Usage:

    icefall-attn-sweep --exp-dir exp --avg 1 3 5 --methods greedy_search modified_beam_search \
        --cuts dev=data/fbank/an4_cuts_dev.jsonl.gz test=data/fbank/an4_cuts_test.jsonl.gz

Each model encodes a set once, for all searches. The files are those of icefall-attn-decode; what is
there and newer than its checkpoints is not decoded again, so that a sweep goes on where it was
stopped. In the end there is a table for each set and search; the first set chooses the model.
"""

import logging
import sys
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

from icefall_attn.bin.options import (
    add_max_duration,
    check_max_duration,
    parse,
    search_parser,
)
from icefall_attn.bin.sets import add_set_options, open_sets, parse_sets
from icefall_attn.decoding import (
    SEARCHES,
    WORD_SEARCHES,
    SearchConfig,
    word_graph,
)
from icefall_attn.decoding.recognizer import Search
from icefall_attn.decoding.sets import decode_set
from icefall_attn.device import choose_device
from icefall_attn.errors import UserError, run_main
from icefall_attn.files import remove_leftovers
from icefall_attn.scoring import Summary, read_summary, result_paths
from icefall_attn.scoring.results import write_results
from icefall_attn.training.checkpoint import read_valid_losses
from icefall_attn.training.experiment import CHOICES, Choice, choose, load_experiment


class Point(NamedTuple):
    """A mean of checkpoints: the last epoch and how many are averaged."""

    epoch: int
    avg: int


#: Error rates by method, set and point.
Rates = Dict[str, Dict[str, Dict[Point, float]]]


def main(arguments: Optional[List[str]] = None) -> None:
    """Decodes what is missing and prints the tables.

    Raises:
      UserError: bad options, nothing to decode.
    """
    options = _parse(arguments)
    searches = [SearchConfig(m, **vars(options.search)) for m in options.methods]
    for config in searches:
        config.validate()
        remove_leftovers(Path(options.exp_dir) / config.method)
    sets = [name for name, _ in parse_sets(options.cuts)]
    device = choose_device(options.device)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    rates: Rates = {c.method: {name: {} for name in sets} for c in searches}
    for point, choice in grid(options).items():
        missing: Dict[str, List[SearchConfig]] = {name: [] for name in sets}
        for name in sets:
            for config in searches:
                rate = known(options, choice, name, config)
                if rate is None:
                    missing[name].append(config)
                else:
                    rates[config.method][name][point] = rate
        for summary, config in decode(options, point, missing, device):
            rates[config.method][summary.set_name][point] = summary.rate
            line = f"{summary.model}, {summary.set_name}, {config.method}: {summary.rate:.2f} %"
            print(line, flush=True)
    for method, by_set in rates.items():
        report(options, method, by_set)


def decode(
    options, point: Point, missing: Dict[str, List[SearchConfig]], device
) -> Iterator[Tuple[Summary, SearchConfig]]:
    """Decodes each set by the searches that are missing, with one model, and writes the files."""
    if not any(missing.values()):
        return
    experiment = load_experiment(
        options.exp_dir, point.avg, options.by, None, point.epoch
    )
    model, tokenizer = experiment.model.to(device), experiment.tokenizer
    for name, loader in open_sets(options, experiment).items():
        searches = [
            Search(config, word_graph(config, tokenizer.tokens, device))
            for config in missing[name]
        ]
        found = decode_set(model, loader, searches, device, name) if searches else []
        for search, decoded in zip(searches, found):
            about = (options.exp_dir, name, experiment.name, search.config)
            _, summary = write_results(decoded, *about, tokenizer, options.unit)
            yield summary, search.config


def report(options, method: str, rates: Dict[str, Dict[Point, float]]) -> None:
    """Prints a search's tables, and the point that the first set chooses."""
    first = next(iter(rates))
    best = best_point(rates[first])
    unit = {"word": "WER", "char": "CER"}[options.unit]
    for name, table in rates.items():
        print(f"\n{unit} in %, {name}, {method}:\n\n{as_markdown(table, best)}")
    results = ", ".join(f"{name} {table[best]:.2f} %" for name, table in rates.items())
    choice = f"--by {options.by} --epoch {best.epoch} --avg {best.avg}"
    print(f"\n{first} chooses {choice}: {results}", flush=True)


def grid(options) -> Dict[Point, Choice]:
    """The means that can be made; those of epochs whose files were deleted are left out.

    Raises:
      UserError: an epoch that was asked for is missing, or there is none.
    """
    directory = Path(options.exp_dir)
    if not directory.is_dir():
        raise UserError(f"no experiment directory {options.exp_dir}")
    asked = options.epochs is not None
    epochs = sorted(options.epochs if asked else read_valid_losses(directory))
    found: Dict[Point, Choice] = {}
    problems: List[str] = []
    for epoch in epochs:
        refused = []
        for avg in sorted(options.avg):
            try:
                found[Point(epoch, avg)] = choose(directory, avg, options.by, epoch)
            except UserError as error:
                refused.append(str(error))
        if asked and len(refused) == len(options.avg):
            raise UserError(refused[0])
        problems += refused
    if not found:
        raise UserError(problems[0] if problems else f"{directory} has no epochs yet")
    return found


def known(
    options, choice: Choice, set_name: str, config: SearchConfig
) -> Optional[float]:
    """The error rate of an earlier run, unless it is older than the model or counts something else."""
    path = result_paths(options.exp_dir, set_name, choice.name, config).summary
    if not path.is_file():
        return None
    newest = max(checkpoint.stat().st_mtime_ns for checkpoint in choice.paths)
    (summary,) = read_summary(path)
    current = path.stat().st_mtime_ns > newest and summary.unit == options.unit
    return summary.rate if current else None


def best_point(table: Dict[Point, float]) -> Point:
    """The lowest rate; of equals the one with the most averaged, which is the steadiest."""
    return min(table, key=lambda point: (table[point], -point.avg, -point.epoch))


def as_markdown(table: Dict[Point, float], chosen: Point) -> str:
    """Rows of epochs, columns of how many are averaged; the chosen one in bold."""
    averages = sorted({point.avg for point in table})
    lines = [
        "| last epoch | " + " | ".join(f"avg {avg}" for avg in averages) + " |",
        "|---" * (len(averages) + 1) + "|",
    ]
    for epoch in sorted({point.epoch for point in table}):
        cells = [f"{epoch}"]
        for avg in averages:
            point = Point(epoch, avg)
            cell = f"{table[point]:.2f}" if point in table else ""
            cells.append(f"**{cell}**" if point == chosen else cell)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _parse(arguments: Optional[List[str]]):
    parser = search_parser(
        "icefall-attn-sweep", "Decodes with every mean of checkpoints.", "method"
    )
    parser.add_argument(
        "--epochs", type=int, nargs="+", help="last epochs (default: all there are)"
    )
    parser.add_argument(
        "--avg", type=int, nargs="+", default=[1, 3, 5], help="epochs to average"
    )
    parser.add_argument(
        "--by", choices=CHOICES, default="epoch", help="as in icefall-attn-decode"
    )
    parser.add_argument(
        "--methods",
        nargs="+",
        choices=[*SEARCHES, *WORD_SEARCHES],
        default=["greedy_search"],
        help="searches that share what a model encodes",
    )
    add_set_options(parser)
    add_max_duration(parser, 600.0)
    options = parse(parser, arguments)
    check_max_duration(options)
    for avg in options.avg:
        if avg < 1:
            raise UserError(f"--avg must be at least 1, not {avg}")
    return options


def cli() -> None:
    """Entry point of ``icefall-attn-sweep``."""
    run_main(main)


if __name__ == "__main__":
    cli()

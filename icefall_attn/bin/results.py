"""Prints the table of all results of experiment directories.

Usage:

    icefall-attn-results --exp-dir exp
"""

from pathlib import Path
from typing import List, Optional, Tuple

from jsonargparse import ArgumentParser

from icefall_attn.bin.options import parse
from icefall_attn.errors import UserError, run_main
from icefall_attn.scoring import Summary, read_summary

_HEADER = "set method checkpoint options rate ins del sub units RTF".split()
_LEFT = 4  # columns of words; the others are numbers


def main(arguments: Optional[List[str]] = None) -> None:
    """Prints one line per decoded set and method, by set and then by error rate.

    Raises:
      UserError: no such directory, or nothing was decoded in it.
    """
    parser = ArgumentParser(
        prog="icefall-attn-results",
        description="Prints the table of all results of experiment directories.",
        exit_on_error=False,
    )
    parser.add_argument("--exp-dir", nargs="+", required=True, help="where to look")
    for directory in parse(parser, arguments).exp_dir:
        results = find_results(directory)
        if not results:
            raise UserError(
                f"no results in {directory}; run icefall-attn-decode on it first"
            )
        print(f"{directory}\n{format_table(results)}")


def find_results(exp_dir: str) -> List[Tuple[str, Summary]]:
    """(method, summary) of every ``wer-summary`` file under ``exp_dir/METHOD/``.

    Raises:
      UserError: no such directory, or a file that is not ours.
    """
    if not Path(exp_dir).is_dir():
        raise UserError(f"no directory {exp_dir}")
    results = []
    for path in sorted(Path(exp_dir).glob("*/wer-summary-*.txt")):
        results += [(path.parent.name, line) for line in read_summary(path)]
    return sorted(results, key=lambda r: (r[1].set_name, r[1].rate, r[0]))


def format_table(results: List[Tuple[str, Summary]]) -> str:
    """An aligned table, words to the left and numbers to the right."""
    rows = [_HEADER]
    for method, line in results:
        name = {"word": "WER", "char": "CER"}[line.unit]
        rows.append(
            [
                line.set_name,
                method,
                line.model,
                line.settings,
                f"{name} {line.rate:.2f}%",
                *map(str, (line.insertions, line.deletions, line.substitutions)),
                str(line.ref_units),
                f"{line.rtf:.4f}",
            ]
        )
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if i < _LEFT else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def cli() -> None:
    """Entry point of ``icefall-attn-results``."""
    run_main(main)


if __name__ == "__main__":
    cli()

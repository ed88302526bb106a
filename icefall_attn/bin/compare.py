"""Puts trained and decoded experiments side by side.

Usage:

    icefall-attn-compare --exp-dir exp-compare --records results/compare.jsonl \
        --table results/compare.md --plot results/compare.png

Experiments are ``exp-compare/NAME/seed-S``. What was recorded before stays, so that a comparison can be
made in pieces, and on several machines.
"""

import sys
from pathlib import Path
from typing import List, Optional

import torch
from jsonargparse import ArgumentParser

from icefall_attn.bin.options import parse
from icefall_attn.bin.results import find_results
from icefall_attn.cost import multiply_adds
from icefall_attn.errors import UserError, run_main
from icefall_attn.files import atomic_write
from icefall_attn.scoring.comparison import (
    Record,
    markdown,
    merge,
    plot,
    read_records,
    write_records,
)


def main(arguments: Optional[List[str]] = None) -> None:
    """Reads experiments and older records; writes records, table and plot.

    Raises:
      UserError: there is neither a decoded experiment nor a record.
    """
    parser = ArgumentParser(
        prog="icefall-attn-compare",
        description="Puts trained and decoded experiments side by side.",
        exit_on_error=False,
    )
    parser.add_argument("--exp-dir", required=True, help="holds NAME/seed-S/")
    parser.add_argument(
        "--records", required=True, help="JSON lines, kept and added to"
    )
    parser.add_argument("--table", required=True, help="Markdown file to write")
    parser.add_argument("--plot", required=True, help="PNG file to write")
    parser.add_argument(
        "--baseline", default="full", help="its seeds say what a difference must exceed"
    )
    parser.add_argument(
        "--control",
        default="B1",
        help="what variants that start from another one's weights are held against",
    )
    parser.add_argument("--set", default="test", help="the set of the plot")
    options = parse(parser, arguments)
    found = [
        record(path)
        for path in sorted(Path(options.exp_dir).glob("*/seed-*"))
        if any(path.glob("*/wer-summary-*.txt"))
    ]
    records = merge(read_records(Path(options.records)), found)
    if not records:
        raise UserError(f"nothing was decoded in {options.exp_dir}/NAME/seed-S")
    names = sorted({one.name for one in records})
    if options.baseline not in names:
        print(
            f"--baseline {options.baseline} is none of the variants so far ({', '.join(names)}), so that"
            " nothing is said of what a difference must exceed",
            file=sys.stderr,
        )
    for path in (options.records, options.table, options.plot):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_records(Path(options.records), records)
    table = markdown(records, options.baseline, options.control)
    with atomic_write(Path(options.table)) as file:
        file.write(table)
    plot(records, options.set, Path(options.plot))
    print(table)


def record(exp_dir: Path) -> Record:
    """What an experiment is remembered by."""
    from icefall_attn.training.checkpoint import LAST, load_checkpoint
    from icefall_attn.training.experiment import load_experiment

    saved = load_checkpoint(exp_dir / LAST)
    progress = saved["progress"]
    experiment = load_experiment(str(exp_dir), checkpoint=LAST)
    train = experiment.config.train
    encoder = experiment.model.encoder
    features = torch.zeros(1, 1000, experiment.config.model.encoder.feature_dim)
    lengths = torch.tensor([1000])
    with torch.no_grad():
        work = multiply_adds(lambda: encoder(features, lengths))
    result = Record(
        name=exp_dir.parent.name,
        seed=train.seed,
        steps=progress["step"],
        init=Path(train.init_from).parent.name if train.init_from else "",
        seconds=round(progress["cpu_seconds"], 1),
        memory_gib=round(progress["memory_gib"], 3),
        parameters=sum(p.numel() for p in experiment.model.parameters()),
        multiply_adds=work,
        machine=progress.get("machine", ""),
    )
    for method, summary in find_results(str(exp_dir)):
        result.add(method, summary)
    return result


def cli() -> None:
    """Entry point of ``icefall-attn-compare``."""
    run_main(main)


if __name__ == "__main__":
    cli()

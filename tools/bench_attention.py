#!/usr/bin/env python3
"""Self-attention modules against each other: time, peak memory, parameters and multiply-adds.

For every registered mechanism and a range of lengths (frames of 40 ms), forward and forward +
backward of one layer's self-attention module, as ratios to ``full`` in the same run. Writes a table
to the console and to a file, and a plot. With ``--core`` the projections of queries, keys, values and
output are left out: they cost the same in all. With ``--eval`` they run as in decoding: no dropout, so
that ``full`` takes torch's fused attention where torch has it (2.1 and later).

    tools/bench_attention.py                                  # 100 to 4000 frames
    tools/bench_attention.py --kinds full prob_sparse --lengths 400 800 --output attention
"""

import argparse
from pathlib import Path
from typing import Any, Dict, List

from measuring import alternate, in_a_process, peak_mib, positive  # before torch

import torch

from icefall_attn.attention import (
    MECHANISMS,
    AttentionConfig,
    AttentionContext,
    make_attention,
    make_shared,
)
from icefall_attn.attention.masking import visible_bias
from icefall_attn.cost import multiply_adds
from icefall_attn.files import atomic_write
from icefall_attn.nn.dropout import begin_step
from icefall_attn.training.allocator import keep_freed_memory

DIM, HEADS = 256, 4
MAX_TABLE = 4000  # rows of lmla's table, where no more are needed; 2000 is its default
COLUMNS = "forward forward+backward memory".split()


def main() -> None:
    """Measures, prints, writes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = list(MECHANISMS)
    parser.add_argument(
        "--kinds", nargs="+", choices=known, default=known, help="mechanisms"
    )
    parser.add_argument(
        "--lengths", type=positive, nargs="+", default=[100, 200, 500, 1000, 2000, 4000],
        help="frames of 40 ms",
    )  # fmt: skip
    parser.add_argument(
        "--frames",
        type=positive,
        default=4000,
        help="of a batch: as many utterances as fit",
    )
    parser.add_argument("--core", action="store_true", help="leave the projections out")
    parser.add_argument("--eval", action="store_true", help="as in decoding")
    parser.add_argument("--repeats", type=positive, default=5, help="measured rounds")
    parser.add_argument(
        "--output", type=Path, default=Path("attention"), help="OUTPUT.{txt,png}"
    )
    args = parser.parse_args()
    kinds = ["full"] + [kind for kind in args.kinds if kind != "full"]
    rows = []
    for length in args.lengths:
        batch = max(1, args.frames // length)
        rows += measure(kinds, length, batch, args.repeats, args.core, args.eval)
        if length == args.lengths[0]:
            print(HEAD)
        for row in rows[-len(kinds) :]:
            print(show(row), flush=True)
    with atomic_write(args.output.with_suffix(".txt")) as file:
        file.write("\n".join([HEAD, *map(show, rows)]) + "\n")
    plot(rows, kinds, args.output.with_suffix(".png"))


HEAD = (
    f"{'mechanism':<12} {'frames':>6} {'batch':>5} {'params':>8} {'M mul-adds':>10} "
    f"{'fwd ms':>8} {'ratio':>6} {'fwd+bwd ms':>10} {'ratio':>6} {'MiB':>7} {'ratio':>6}"
)


def show(row: Dict[str, Any]) -> str:
    """One line of the table."""
    return (
        f"{row['kind']:<12} {row['frames']:>6} {row['batch']:>5} {row['parameters']:>8} "
        f"{row['work'] / 1e6:>10.0f} {row['forward'] * 1e3:>8.1f} {row['forward ratio']:>6.2f} "
        f"{row['forward+backward'] * 1e3:>10.1f} {row['forward+backward ratio']:>6.2f} "
        f"{row['memory']:>7.0f} {row['memory ratio']:>6.2f}"
    )


def measure(
    kinds: List[str], frames: int, batch: int, repeats: int, core: bool, decoding: bool
) -> List[Dict[str, Any]]:
    """One row per mechanism, ratios to the first."""
    modules = {kind: Layer(kind, frames, batch, core, decoding) for kind in kinds}
    forward = alternate({kind: m.forward for kind, m in modules.items()}, repeats)
    both = alternate({kind: m.forward_backward for kind, m in modules.items()}, repeats)
    rows = []
    for kind, module in modules.items():
        rows.append(
            {
                "kind": kind,
                "frames": frames,
                "batch": batch,
                "parameters": module.parameters,
                "work": module.multiply_adds(),
                "forward": forward[kind],
                "forward+backward": both[kind],
                "memory": in_a_process(memory_of, kind, frames, batch, core, decoding),
            }
        )
    for row in rows:
        for column in COLUMNS:
            row[f"{column} ratio"] = row[column] / rows[0][column]
    return rows


class Layer:
    """One layer's self-attention and a batch of equally long utterances."""

    def __init__(self, kind: str, frames: int, batch: int, core: bool, decoding: bool):
        torch.manual_seed(0)
        config = AttentionConfig(kind=kind)
        config.lmla.max_length = max(MAX_TABLE, frames)
        self.module = make_attention(config, DIM, HEADS, 0.1, 0).train(not decoding)
        if core:
            for name in ("query", "key", "value", "out"):
                setattr(self.module, name, torch.nn.Identity())
        self.shared = make_shared(config, DIM)
        self.valid = torch.ones(batch, frames, dtype=torch.bool)
        self.x = torch.randn(batch, frames, DIM, requires_grad=True)
        self.parameters = sum(p.numel() for p in self.module.parameters())

    def forward(self) -> torch.Tensor:
        """Without what the backward pass needs."""
        with torch.no_grad():
            return self.run()

    def forward_backward(self) -> None:
        """Of the sum of the output."""
        self.run().sum().backward()

    def run(self) -> torch.Tensor:
        """A forward pass."""
        begin_step(self.module, True)
        shared = self.shared(self.x.size(1))
        context = AttentionContext(
            self.valid, visible_bias(self.valid, self.x.dtype), shared
        )
        return self.module(self.x, context)

    def multiply_adds(self) -> float:
        """Of a forward pass, counted from its matrix products."""
        return multiply_adds(self.forward)


def memory_of(kind: str, frames: int, batch: int, core: bool, decoding: bool) -> float:
    """Peak MiB of forward and backward above the module and its input."""
    layer = Layer(kind, frames, batch, core, decoding)
    warm_up = Layer(kind, 20, 1, core, decoding)
    warm_up.forward_backward()  # libraries allocate at their first call
    return peak_mib(layer.forward_backward)


def plot(rows: List[Dict[str, Any]], kinds: List[str], path: Path) -> None:
    """Ratios to full over the length, one panel a column."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4), constrained_layout=True)
    for axes, column in zip(figure.subplots(1, len(COLUMNS)), COLUMNS):
        for kind in kinds:
            own = [row for row in rows if row["kind"] == kind]
            axes.plot(
                [row["frames"] for row in own],
                [row[f"{column} ratio"] for row in own],
                marker="o",
                label=kind,
            )
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_title(f"{column}, ratio to full")
        axes.set_xlabel("frames of 40 ms")
    axes.legend(fontsize=8)
    with atomic_write(path, "wb") as file:
        figure.savefig(file, format="png", dpi=120)


if __name__ == "__main__":
    keep_freed_memory()
    main()

#!/usr/bin/env python3
"""Contexts against each other: training passes, steps of a stream, latency, state.

One Conformer block, forward and backward, as a ratio to ``causal`` in the same run; an encoder of
several blocks step by step, with what it keeps of a stream of ten seconds.

    tools/bench_contexts.py                                # rel_pos, utterances of 250 and 1000 frames
    tools/bench_contexts.py --kinds full lmla --piece 1    # a frame of 40 ms at a time
"""

import argparse
import statistics
import time
from typing import Dict

from measuring import alternate, positive  # before torch

import torch

from icefall_attn.attention import MECHANISMS, AttentionConfig
from icefall_attn.attention.contexts import CONTEXTS, ContextConfig
from icefall_attn.encoder.conformer import Conformer, ConformerConfig
from icefall_attn.encoder.latency import latency
from icefall_attn.encoder.stream import state_bytes
from icefall_attn.nn.dropout import begin_step
from icefall_attn.training.allocator import keep_freed_memory

SECONDS = 10
STREAMED = [kind for kind in CONTEXTS if kind != "full"]


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = [kind for kind in MECHANISMS if kind != "prob_sparse"]
    parser.add_argument(
        "--kinds", nargs="+", choices=known, default=["rel_pos"], help="mechanisms"
    )
    parser.add_argument(
        "--lengths", type=positive, nargs="+", default=[250, 1000], help="frames"
    )
    parser.add_argument(
        "--frames", type=positive, default=1000, help="of a batch: as many as fit"
    )
    parser.add_argument("--layers", type=positive, default=4, help="of a stream")
    parser.add_argument("--streams", type=positive, default=1, help="side by side")
    parser.add_argument(
        "--piece", type=positive, default=4, help="frames of 40 ms that come at once"
    )
    parser.add_argument("--repeats", type=positive, default=5, help="measured rounds")
    args = parser.parse_args()
    for kind in args.kinds:
        for length in args.lengths:
            batch = max(1, args.frames // length)
            times = alternate(
                {context: Block(kind, context, length, batch) for context in CONTEXTS},
                args.repeats,
            )
            print(f"{kind}, {batch} x {length} frames, ms and ratio of one block:")
            for context, seconds in times.items():
                ratio = seconds / times["causal"]
                print(f"  {context:<8}{1e3 * seconds:>9.1f}{ratio:>7.2f}", flush=True)
        print(
            f"{kind}, {args.layers} blocks, {args.streams} streams, {args.piece} frames at a time: "
            "latency, ms a frame (median, 90 %), KiB a stream"
        )
        for context in STREAMED:
            print(f"  {stream(kind, context, args)}", flush=True)


def configure(kind: str, context: str, layers: int) -> ConformerConfig:
    """An encoder of width 256 with the contexts' default options."""
    attention = AttentionConfig(kind=kind)
    if hasattr(getattr(attention, kind, None), "period"):
        getattr(attention, kind).period = 2000
    return ConformerConfig(
        num_layers=layers,
        kernel_size=17,
        attention=attention,
        context=ContextConfig(context),
    )


class Block:
    """A block and a batch of equally long utterances; a call is a step of training."""

    def __init__(self, kind: str, context: str, frames: int, batch: int):
        torch.manual_seed(0)
        self.encoder = Conformer(configure(kind, context, 1)).train()
        self.valid = torch.ones(batch, frames, dtype=torch.bool)
        self.x = torch.randn(batch, frames, 256, requires_grad=True)

    def __call__(self) -> None:
        begin_step(self.encoder, True)
        view = self.encoder.view
        x, valid = view.enter(self.x, self.valid)
        context = view.context(valid, x.dtype, self.encoder.shared(self.x.size(1)))
        self.encoder.blocks[0](x, context).sum().backward()


@torch.no_grad()
def stream(kind: str, context: str, args: argparse.Namespace) -> str:
    """A line on streams of some seconds."""
    torch.manual_seed(0)
    config = configure(kind, context, args.layers)
    encoder = Conformer(config).eval()
    state = encoder.init_stream(args.streams)
    frames = 4 * args.piece
    lengths = torch.full((args.streams,), frames)
    final = torch.zeros(args.streams, dtype=torch.bool)
    times = []
    for _ in range(100 * SECONDS // frames):
        piece = torch.randn(args.streams, frames, config.feature_dim)
        start = time.perf_counter()
        _, _, state = encoder.step(piece, lengths, state, final)
        times.append((time.perf_counter() - start) / args.piece / args.streams)
    told = latency(config)
    values: Dict[str, float] = {
        "median": 1e3 * statistics.median(times),
        "slow": 1e3 * statistics.quantiles(times, n=10)[-1],
        "size": state_bytes(state) / 1024 / args.streams,
    }
    return (
        f"{context:<8}{told.least:>6.0f} to {told.most:>5.0f}{values['median']:>9.2f}"
        f"{values['slow']:>9.2f}{values['size']:>9.0f}"
    )


if __name__ == "__main__":
    keep_freed_memory()
    main()

#!/usr/bin/env python3
"""The pruned transducer loss against the plain use of k2's five functions: time and peak memory.

Both compute the same from the same inputs, forward and backward of the joiner's output layer and
the losses, in alternation in one run. Memory is that of a fresh process each, above what inputs
and gradients take, which both ways need.

    tools/bench_rnnt.py                        # B 8, T' 250, U 50, R 5, J 512, V 500 and 5000
    tools/bench_rnnt.py --exp-dir egs/an4/ASR/exp --cuts egs/an4/ASR/data/fbank/an4_cuts_dev.jsonl.gz

Random weights spread the occupation of a frame over all its R cells. With an experiment, the inputs
are those of its model on its speech (utterances joined until they are as long as T' and U allow),
widened to J and V by units that say nothing and tokens that nobody expects: the occupations are
the trained model's.
"""

import argparse
from functools import partial
from pathlib import Path
from typing import Callable, List, NamedTuple

from measuring import alternate, in_a_process, peak_mib, positive  # before torch

import torch
import torch.nn.functional as F
from rnnt_batches import Shape, random_batch, trained_batch
from torch import Tensor

from icefall_attn.environment import why_no_k2
from icefall_attn.rnnt.config import LossConfig
from icefall_attn.rnnt.lattice import occupation
from icefall_attn.rnnt.pruned import pruned_transducer_loss
from icefall_attn.training.allocator import keep_freed_memory


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sizes = {
        "size": (8, "utterances B"),
        "frames": (250, "encoder frames T'"),
        "labels": (50, "labels U"),
        "prune-range": (5, "kept labels R"),
        "dim": (512, "width J of the joiner"),
        "repeats": (5, "of each measurement"),
    }
    for name, (default, meaning) in sizes.items():
        parser.add_argument(
            f"--{name}",
            type=positive,
            default=default,
            help=f"{meaning} (default: {default})",
        )
    parser.add_argument(
        "--vocab",
        type=positive,
        nargs="+",
        default=[500, 5000],
        help="numbers of tokens V (default: 500 5000)",
    )
    parser.add_argument("--exp-dir", help="a trained experiment, beside random weights")
    parser.add_argument("--cuts", help="speech for it, with features")
    args = parser.parse_args()
    if why_no_k2():
        parser.error(f"there is nothing to compare with: {why_no_k2()}")
    if (args.exp_dir is None) != (args.cuts is None):
        parser.error("--exp-dir and --cuts belong together")
    if args.cuts and not Path(args.cuts).is_file():
        parser.error(f"--cuts: no file {args.cuts}")
    print(
        f"B {args.size}, T' {args.frames}, U {args.labels}, R {args.prune_range}, J {args.dim}; ratios are k2's over ours"
    )
    print(
        f"{'V':>5} {'occupations':<12} {'k2 s':>7} {'ours s':>7} {'ratio':>6} {'k2 MiB':>7} {'ours MiB':>8} {'ratio':>6} {'gradient error':>14}"
    )
    for vocab in args.vocab:
        shape = Shape(args.size, args.frames, args.labels, args.dim, vocab)
        report("random", partial(random_batch, shape), args)
        if args.exp_dir:
            make = partial(trained_batch, shape, args.exp_dir, args.cuts)
            report("trained", make, args)
    recursion(args)


def report(kind: str, make: Callable[[], dict], args: argparse.Namespace) -> None:
    """One line: both ways on one batch."""
    batch, config = make(), LossConfig(prune_range=args.prune_range)
    gradients = {name: run(name, batch, config) for name in ("k2", "ours")}
    calls = {name: partial(run, name, batch, config) for name in gradients}
    seconds = alternate(calls, args.repeats)
    memory = {name: in_a_process(peak_memory, name, make, config) for name in calls}
    error = max(
        float((a - b).norm() / a.norm())
        for a, b in zip(gradients["k2"], gradients["ours"])
    )
    print(
        f"{batch['weight'].size(0):>5} {kind:<12} {seconds['k2']:>7.3f} {seconds['ours']:>7.3f} "
        f"{seconds['k2'] / seconds['ours']:>6.2f} {memory['k2']:>7.0f} {memory['ours']:>8.0f} "
        f"{memory['k2'] / memory['ours']:>6.2f} {error:>14.1e}",
        flush=True,
    )


class Output(NamedTuple):
    """The joiner's output layer, with its weights as plain tensors."""

    weight: Tensor
    bias: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


def run(name: str, batch: dict, config: LossConfig) -> List[Tensor]:
    """Forward and backward; returns the gradients."""
    inputs = [v for v in batch.values() if v.is_floating_point()]
    arguments = dict(batch)
    output = Output(arguments.pop("weight"), arguments.pop("bias"))
    loss = plain_k2 if name == "k2" else pruned_transducer_loss
    simple, pruned = loss(**arguments, output=output, config=config)
    return torch.autograd.grad((0.5 * simple + pruned).sum(), inputs)


def plain_k2(
    *, simple_encoder, simple_predictor, encoder, predictor, output, labels, label_lengths, lengths, config
):  # fmt: skip
    """The plain use of k2's five functions, as recipes have it; arguments as `pruned_transducer_loss`."""
    import k2

    boundary = torch.zeros(labels.size(0), 4, dtype=torch.int64)
    boundary[:, 2], boundary[:, 3] = label_lengths, lengths
    simple, (px_grad, py_grad) = k2.rnnt_loss_smoothed(
        lm=simple_predictor, am=simple_encoder, symbols=labels, termination_symbol=0,
        lm_only_scale=config.lm_scale, am_only_scale=config.am_scale, boundary=boundary,
        reduction="none", return_grad=True,
    )  # fmt: skip
    ranges = k2.get_rnnt_prune_ranges(px_grad, py_grad, boundary, config.prune_range)
    encoder, predictor = k2.do_rnnt_pruning(encoder, predictor, ranges)
    logits = output(torch.tanh(encoder + predictor))
    pruned = k2.rnnt_loss_pruned(
        logits=logits, symbols=labels, ranges=ranges, termination_symbol=0, boundary=boundary,
        reduction="none",
    )  # fmt: skip
    return simple, pruned


def peak_memory(name: str, make: Callable[[], dict], config: LossConfig) -> float:
    """MiB that a run takes above what was there before it."""
    batch = make()
    small = random_batch(Shape(size=1, frames=20, labels=5, dim=16, vocab=20))
    run(name, small, config)  # libraries allocate at their first call
    inputs = [v for v in batch.values() if v.is_floating_point()]
    own = sum(v.numel() * v.element_size() for v in inputs) / 2**20
    # the gradients themselves are wanted by both
    return peak_mib(lambda: run(name, batch, config)) - own


def recursion(args: argparse.Namespace) -> None:
    """The sum over alignments alone, with occupations: torch against k2."""
    torch.manual_seed(0)
    size, frames, labels = args.size, args.frames, args.labels
    px = torch.randn(size, labels, frames + 1) - 3
    py = torch.randn(size, labels + 1, frames) - 1
    px[:, :, -1] = float("-inf")
    sizes = torch.full((size,), labels), torch.full((size,), frames)
    calls = {
        name: partial(occupation, px, py, *sizes, name) for name in ("k2", "torch")
    }
    k2_time, torch_time = alternate(calls, 4 * args.repeats).values()
    print(
        f"recursion: k2 {k2_time * 1e3:.1f} ms, torch {torch_time * 1e3:.1f} ms, torch takes {torch_time / k2_time:.2f} of k2's time"
    )


if __name__ == "__main__":
    keep_freed_memory()
    main()

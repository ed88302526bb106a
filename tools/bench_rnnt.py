#!/usr/bin/env python3
"""The pruned transducer loss against the plain use of k2's five functions: time and peak memory.

Both compute the same from the same inputs, forward and backward of the joiner's output layer and
the losses, in alternation in one run. Memory is that of a fresh process each, above what inputs
and gradients take, which both ways need.

    tools/bench_rnnt.py                          # B 8, T' 250, U 50, R 5, J 512, V 500 and 5000
    tools/bench_rnnt.py --occupations trained    # a lattice as peaked as a trained model's
"""

import argparse

from measuring import alternate, in_a_process, peak_mib, positive  # before torch

import k2
import torch

from icefall_attn.rnnt.config import LossConfig
from icefall_attn.rnnt.lattice import occupation
from icefall_attn.rnnt.pruned import pruned_transducer_loss
from icefall_attn.training.allocator import keep_freed_memory


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--vocab",
        type=positive,
        nargs="+",
        default=[500, 5000],
        help="numbers of tokens (default: 500 5000)",
    )
    parser.add_argument(
        "--occupations",
        choices=["random", "trained"],
        nargs="+",
        default=["random", "trained"],
        help="how peaked the lattice is (default: both)",
    )
    parser.add_argument(
        "--repeats", type=positive, default=5, help="of each measurement (default: 5)"
    )
    args = parser.parse_args()
    print(
        f"{'V':>5} {'occupations':<12} {'k2 s':>7} {'ours s':>7} {'ratio':>6} {'k2 MiB':>7} {'ours MiB':>8} {'ratio':>6} {'gradient error':>14}"
    )
    for vocab in args.vocab:
        for kind in args.occupations:
            report(vocab, kind, args.repeats)
    recursion(args.repeats)


def report(vocab: int, kind: str, repeats: int) -> None:
    """One line: both ways on one batch."""
    batch = make_batch(vocab, kind)
    gradients = {name: run(name, batch) for name in ("k2", "ours")}
    calls = {name: lambda name=name: run(name, batch) for name in gradients}
    seconds = alternate(calls, repeats)
    memory = {name: in_a_process(peak_memory, name, vocab, kind) for name in calls}
    error = max(
        float((a - b).norm() / a.norm())
        for a, b in zip(gradients["k2"], gradients["ours"])
    )
    print(
        f"{vocab:>5} {kind:<12} {seconds['k2']:>7.3f} {seconds['ours']:>7.3f} "
        f"{seconds['k2'] / seconds['ours']:>6.2f} {memory['k2']:>7.0f} {memory['ours']:>8.0f} "
        f"{memory['k2'] / memory['ours']:>6.2f} {error:>14.1e}",
        flush=True,
    )


def make_batch(
    vocab: int,
    kind: str,
    size: int = 8,
    frames: int = 250,
    count: int = 50,
    dim: int = 512,
) -> dict:
    """Inputs of joiner and loss; ``trained`` gives each frame one or two probable positions."""
    torch.manual_seed(0)
    labels = torch.randint(1, vocab, (size, count))
    batch = {
        "am": 0.1 * torch.randn(size, frames, vocab),
        "lm": 0.1 * torch.randn(size, count + 1, vocab),
        "encoder": torch.randn(size, frames, dim),
        "predictor": torch.randn(size, count + 1, dim),
        "weight": torch.randn(vocab, dim) / dim**0.5,
        "bias": torch.zeros(vocab),
    }
    if kind == "trained":
        make_peaked(batch, labels, frames, count)
    batch = {name: value.requires_grad_() for name, value in batch.items()}
    batch["labels"] = labels
    batch["label_lengths"] = torch.full((size,), count)
    batch["lengths"] = torch.full((size,), frames)
    return batch


def make_peaked(batch: dict, labels: torch.Tensor, frames: int, count: int) -> None:
    """Makes label u + 1 likely near frame (u + 0.5) frames / count, and blank elsewhere."""
    half = batch["encoder"].size(2) // 2
    weight = batch["weight"]
    at = ((torch.arange(count) + 0.5) * frames / count).long()
    batch["encoder"][:] *= 0.1
    batch["predictor"][:] *= 0.1
    weight[:] *= 0.1
    weight[0, :half] = 3.0 / half**0.5
    batch["encoder"][:, :, :half] += 1.0
    batch["am"][:, :, 0] += 6.0
    for b in range(labels.size(0)):
        for u, frame in enumerate(at.tolist()):
            direction = torch.sign(weight[labels[b, u]])
            batch["encoder"][b, frame] = 2.0 * direction
            weight[labels[b, u], half:] = (
                torch.sign(weight[labels[b, u], half:]) * 4.0 / half**0.5
            )
            batch["am"][b, frame, labels[b, u]] += 14.0


def run(name: str, batch: dict) -> list:
    """Forward and backward; returns the gradients."""
    inputs = [v for v in batch.values() if v.is_floating_point()]
    output = torch.nn.Linear(1, 1)
    del output.weight, output.bias
    output.weight, output.bias = batch["weight"], batch["bias"]
    loss = plain_k2 if name == "k2" else pruned_transducer_loss
    simple, pruned = loss(
        simple_encoder=batch["am"],
        simple_predictor=batch["lm"],
        encoder=batch["encoder"],
        predictor=batch["predictor"],
        output=output,
        labels=batch["labels"],
        label_lengths=batch["label_lengths"],
        lengths=batch["lengths"],
        config=LossConfig(),
    )
    return torch.autograd.grad((0.5 * simple + pruned).sum(), inputs)


def plain_k2(
    *, simple_encoder, simple_predictor, encoder, predictor, output, labels, label_lengths, lengths, config
):  # fmt: skip
    """The plain use of k2's five functions, as recipes have it; arguments as `pruned_transducer_loss`."""
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


def peak_memory(name: str, vocab: int, kind: str) -> float:
    """MiB that a run takes above what was there before it."""
    batch = make_batch(vocab, kind)
    small = make_batch(20, "random", size=1, frames=20, count=5)
    run(name, small)  # libraries allocate at their first call
    inputs = [v for v in batch.values() if v.is_floating_point()]
    own = sum(v.numel() * v.element_size() for v in inputs) / 2**20
    # the gradients themselves are wanted by both
    return peak_mib(lambda: run(name, batch)) - own


def recursion(repeats: int) -> None:
    """The sum over alignments alone, with occupations: torch against k2."""
    torch.manual_seed(0)
    px, py = torch.randn(8, 50, 251) - 3, torch.randn(8, 51, 250) - 1
    px[:, :, -1] = float("-inf")
    sizes = torch.full((8,), 50), torch.full((8,), 250)
    calls = {
        name: lambda name=name: occupation(px, py, *sizes, name)
        for name in ("k2", "torch")
    }
    k2_time, torch_time = alternate(calls, 4 * repeats).values()
    print(
        f"recursion: k2 {k2_time * 1e3:.1f} ms, torch {torch_time * 1e3:.1f} ms, torch takes {torch_time / k2_time:.2f} of k2's time"
    )


if __name__ == "__main__":
    keep_freed_memory()
    main()

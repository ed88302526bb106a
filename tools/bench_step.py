#!/usr/bin/env python3
"""How much of the machine's matrix-product rate a training step reaches, and where its time goes.

One step is what the trainer does for one batch: forward, simple and pruned loss (k2's recursion),
backward, clipping, AdamW. Its multiply-adds are counted from the matrix products and
convolutions that the step's definition needs (three times the forward ones, the backward pass
having two products for one), recomputation not counted. The rate of a plain float32 product
is measured in the same run.

    tools/bench_step.py                      # 16 x 256, FF 1024, kernel 15, V 500, 8 x 10 s
    tools/bench_step.py --model small        # the an4 recipe's model on 16 s
    tools/bench_step.py --loss k2 fused      # what our loss saves of a whole step
"""

import argparse
import statistics
import time
from functools import partial

from measuring import alternate, in_a_process, positive  # before torch

import bench_rnnt
import torch
from torch import nn

from icefall_attn.attention import MECHANISMS, AttentionConfig
from icefall_attn.data.batch import Batch
from icefall_attn.device import peak_memory_gib
from icefall_attn.encoder.conformer import ConformerConfig
from icefall_attn.environment import environment_report
from icefall_attn.nn.dropout import begin_step
from icefall_attn.nn.lengths import subsampled
from icefall_attn.rnnt.config import LossConfig
from icefall_attn.rnnt.pruned import pruned_transducer_loss
from icefall_attn.training.allocator import keep_freed_memory
from icefall_attn.training.objective import Objective
from icefall_attn.training.schedule import FlatOptimizer, OptimConfig
from icefall_attn.transducer import model as model_module
from icefall_attn.transducer.model import Transducer, TransducerConfig
from icefall_attn.transducer.predictor import PredictorConfig

SIZES = {
    "seed": dict(dim=256, layers=16, hidden=1024, channels=256, joiner=512, vocab=500),
    "small": dict(dim=144, layers=4, hidden=576, channels=32, joiner=128, vocab=30),
}
BATCHES = {"seed": (8, 10.0, 50), "small": (4, 4.0, 25)}  # utterances, seconds, labels


def main() -> None:
    """Measures and prints."""
    args = parse_args()
    if args.verbose:
        print(environment_report())
    if len(args.loss) > 1:
        compare(args)
        return
    bench = Bench(args)
    choose_loss(args.loss[0])
    steps, rates = [], [product_rate()]
    for _ in range(args.steps + 2):
        steps.append(bench.step())
        rates.append(product_rate())
    # Each step is set against the products just before and after it: a shared machine's speed
    # changes by the second. The first two steps warm up.
    work = step_multiply_adds(args)
    shares = sorted(
        2 * work / seconds / (before + after)
        for seconds, before, after in zip(steps[2:], rates[2:], rates[3:])
    )
    middle, rate = statistics.median(steps[2:]), statistics.median(rates[2:])
    print(bench.title())
    print(f"step: median {middle:.3f} s, best {min(steps[2:]):.3f} s of {args.steps}")
    print(
        f"work: {work / 1e9:.1f} G multiply-adds; plain product: {rate / 1e9:.1f} G multiply-adds/s"
    )
    print(
        f"share of the plain product's rate: {statistics.median(shares):.3f} "
        f"({shares[0]:.3f} to {shares[-1]:.3f})"
    )
    print(f"peak memory: {peak_memory_gib():.2f} GiB")
    print("time split:")
    for name, seconds in bench.clock.split(middle).items():
        print(f"  {name:<22} {seconds * 1e3:8.1f} ms {100 * seconds / middle:5.1f} %")


class Bench:
    """A model, a batch and what it takes to make steps."""

    def __init__(self, args: argparse.Namespace):
        keep_freed_memory()
        torch.manual_seed(0)
        self.args = args
        self.model = make_model(args)
        self.batch = make_batch(args)
        self.optimizer = FlatOptimizer(self.model, OptimConfig(lr=1e-4))
        self.objective = Objective(
            self.model, LossConfig(warm_steps=0), drop=lambda *_: None
        )
        self.clock = Clock(self.model)

    def step(self) -> float:
        """One training step; returns its seconds."""
        begin = time.perf_counter()
        begin_step(self.model, True)
        self.optimizer.zero_grad()
        terms = self.objective(self.batch, step=0, progress=0.0)
        forward = time.perf_counter()
        (terms.total / terms.frames).backward()
        backward = time.perf_counter()
        self.optimizer.step(1e-4, float(self.optimizer.grad_norm()))
        end = time.perf_counter()
        self.clock.add("forward", forward - begin)
        self.clock.add("backward", backward - forward)
        self.clock.add("optimizer", end - backward)
        return end - begin

    def title(self) -> str:
        """Model and batch, two lines."""
        size = sum(p.numel() for p in self.model.parameters()) / 1e6
        utterances, seconds, labels = BATCHES[self.args.model]
        return (
            f"model: {self.args.model}, attention {self.args.attention}, {size:.2f} M parameters, "
            f"V {self.model.vocab_size}\nbatch: {utterances} x {seconds:g} s, {labels} labels each"
        )


def choose_loss(name: str) -> None:
    """Makes the model use ours (``fused``) or the plain use of ``k2``'s functions."""
    plain = name == "k2"
    model_module.pruned_transducer_loss = (
        bench_rnnt.plain_k2 if plain else pruned_transducer_loss
    )


def compare(args: argparse.Namespace) -> None:
    """Steps with one loss and another in turns; memory in processes of their own."""
    bench = Bench(args)
    print(bench.title())

    def step_with(name: str) -> None:
        choose_loss(name)
        bench.step()

    seconds = alternate(
        {name: partial(step_with, name) for name in args.loss}, args.steps
    )
    memory = {name: in_a_process(memory_of, name, args) for name in args.loss}
    first = args.loss[0]
    for name in args.loss:
        print(
            f"{name:<6} {seconds[name]:7.3f} s ({seconds[first] / seconds[name]:.2f} x) "
            f"{memory[name]:6.2f} GiB ({memory[first] / memory[name]:.2f} x)"
        )


def memory_of(loss: str, args: argparse.Namespace) -> float:
    """Peak GiB of a process that makes two steps."""
    choose_loss(loss)
    bench = Bench(args)
    bench.step()
    bench.step()
    return peak_memory_gib()


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--model", choices=list(SIZES), default="seed", help="sizes (default: seed)"
    )
    parser.add_argument(
        "--attention",
        choices=list(MECHANISMS),
        default="rel_pos",
        help="mechanism (default: rel_pos)",
    )
    parser.add_argument(
        "--steps", type=positive, default=10, help="measured steps (default: 10)"
    )
    parser.add_argument(
        "--loss",
        choices=["fused", "k2"],
        nargs="+",
        default=["fused"],
        help="ours, or the plain use of k2's functions, or both in turns (default: fused)",
    )
    parser.add_argument(
        "--vocab", type=positive, help="tokens (default: 500, small: 30)"
    )
    parser.add_argument(
        "--dropout", type=float, default=0.1, help="of the encoder (default: 0.1)"
    )
    parser.add_argument(
        "--verbose", action="store_true", help="print the environment too"
    )
    args = parser.parse_args()
    args.size = dict(SIZES[args.model])
    args.size["vocab"] = args.vocab or args.size["vocab"]
    return args


def make_model(args: argparse.Namespace) -> Transducer:
    size = args.size
    encoder = ConformerConfig(
        dim=size["dim"],
        num_layers=size["layers"],
        feed_forward_dim=size["hidden"],
        kernel_size=15,
        subsampling_channels=size["channels"],
        dropout=args.dropout,
        attention=AttentionConfig(kind=args.attention),
    )
    predictor = PredictorConfig(dim=min(size["dim"], 256), dropout=args.dropout)
    return Transducer(
        TransducerConfig(
            encoder=encoder,
            predictor=predictor,
            joiner_dim=size["joiner"],
            vocab_size=size["vocab"],
        )
    ).train()


def make_batch(args: argparse.Namespace) -> Batch:
    utterances, seconds, labels = BATCHES[args.model]
    frames = int(seconds * 100)
    vocab = args.size["vocab"]
    return Batch(
        ids=[str(i) for i in range(utterances)],
        features=torch.randn(utterances, frames, 80),
        feature_lengths=torch.full((utterances,), frames),
        texts=[""] * utterances,
        tokens=torch.randint(3, vocab, (utterances, labels)).tolist(),
        durations=[seconds] * utterances,
    )


class Clock:
    """Times the parts of a step: forward parts through hooks, the rest from outside."""

    def __init__(self, model: Transducer):
        self.times: dict = {}
        parts = {"front-end": [model.encoder.subsampling]}
        for block in model.encoder.blocks:
            parts.setdefault("feed-forward", []).extend(
                [block.feed_forward_in, block.feed_forward_out]
            )
            parts.setdefault("attention", []).append(block.attention)
            parts.setdefault("convolution", []).append(block.conv)
        for name, modules in parts.items():
            for module in modules:
                self._watch(f"forward {name}", module)
        self._watch("forward encoder", model.encoder, method="layers")

    def _watch(self, name: str, module: nn.Module, method: str = "forward") -> None:
        original = getattr(module, method)

        def timed(*args, **kwargs):
            start = time.perf_counter()
            result = original(*args, **kwargs)
            self.add(name, time.perf_counter() - start)
            return result

        setattr(module, method, timed)

    def add(self, name: str, seconds: float) -> None:
        self.times.setdefault(name, []).append(seconds)

    def split(self, step: float) -> dict:
        """Seconds of a step by part, scaled from means to ``step``."""
        steps = len(self.times["backward"])
        sums = {name: sum(values) / steps for name, values in self.times.items()}
        inner = sum(
            v
            for k, v in sums.items()
            if k.startswith("forward ") and k != "forward encoder"
        )
        sums["forward norms, sums"] = sums.pop("forward encoder") - inner
        losses = sums.pop("forward") - inner - sums["forward norms, sums"]
        sums["forward loss"] = losses
        total = sum(sums.values())
        return {name: value * step / total for name, value in sorted(sums.items())}


def product_rate(size: int = 2048) -> float:
    """Multiply-adds per second of a plain float32 product of square matrices, best of 4."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    best = float("inf")
    for _ in range(4):
        start = time.perf_counter()
        torch.mm(a, b)
        best = min(best, time.perf_counter() - start)
    return size**3 / best


def step_multiply_adds(args: argparse.Namespace) -> float:
    """Multiply-adds of one step, by the model's definition.

    Every product of the forward pass has two in the backward pass, except the first convolution,
    whose input needs no gradient.
    """
    size = args.size
    utterances, seconds, labels = BATCHES[args.model]
    dim, hidden, channels = size["dim"], size["hidden"], size["channels"]
    joiner, vocab, frames_in = size["joiner"], size["vocab"], int(seconds * 100)
    frames = subsampled(frames_in)
    half = (frames_in - 1) // 2
    front = (
        half * 39 * 9 * channels
        + frames * 19 * 9 * channels**2
        + frames * 19 * channels * dim
    )
    feed_forward = 2 * 2 * frames * dim * hidden
    attention = 4 * frames * dim**2 + 2 * frames**2 * dim
    if args.attention == "rel_pos":
        attention += frames**2 * dim  # the scores by distance that are used
    convolution = frames * (3 * dim**2 + 15 * dim)
    encoder = front + size["layers"] * (feed_forward + attention + convolution)
    if args.attention == "rel_pos":  # the table is projected once a batch
        encoder += size["layers"] * (2 * frames - 1) * dim**2 / utterances
    predictor = (labels + 1) * (8 * dim**2 + dim * (joiner + vocab))
    simple = frames * dim * (joiner + vocab) + frames * (labels + 1) * vocab
    pruned = frames * 5 * joiner * vocab
    forward = encoder + predictor + simple + pruned
    return float(utterances * (3 * forward - half * 39 * 9 * channels))


if __name__ == "__main__":
    main()

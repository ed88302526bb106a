#!/usr/bin/env python3
"""What a trainer costs beside forward, backward and optimiser, and what several processes gain.

    cd egs/an4/ASR && ../../../tools/bench_trainer.py                 # overhead of a step
    cd egs/an4/ASR && ../../../tools/bench_trainer.py --processes 2   # 2 x 1 thread against 1 x 2
    tools/bench_trainer.py --checkpoint 80     # of 80 M parameters: how long training waits for it

In a recipe's directory whose data is prepared. The overhead is all of the loop's time that is not
spent in the losses of a batch, their backward pass and the optimiser: loading, filtering, masks,
sums, logging. Processes are compared by the audio that goes by, in turns.
"""

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Callable, List

from measuring import positive  # before torch

import torch

from icefall_attn.bin.launch import LAUNCHED
from icefall_attn.config import RunConfig, parse
from icefall_attn.data.lexicon import load_lexicon
from icefall_attn.data.loader import train_loader
from icefall_attn.data.tokenizer import load_tokenizer
from icefall_attn.training.allocator import keep_freed_memory
from icefall_attn.training.objective import Objective
from icefall_attn.training.schedule import FlatOptimizer
from icefall_attn.training.trainer import Trainer
from icefall_attn.training.writer import CheckpointWriter


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", default="conf/train.yaml", help="of the training")
    parser.add_argument("--steps", type=positive, default=200, help="to be measured")
    parser.add_argument(
        "--processes", type=positive, default=1, help="against one with as many threads"
    )
    parser.add_argument("--repeats", type=positive, default=3, help="of the comparison")
    parser.add_argument(
        "--checkpoint",
        type=positive,
        help="millions of parameters; nothing else is done",
    )
    args = parser.parse_args()
    if args.checkpoint:
        checkpoint(10**6 * args.checkpoint)
        return
    with tempfile.TemporaryDirectory() as directory:
        if args.processes == 1:
            overhead(args.config, args.steps, directory)
        else:
            compare(args, directory)


def overhead(path: str, steps: int, directory: str) -> None:
    """Trains some steps with a clock in the parts that are no overhead."""
    config = parse(RunConfig, ["--config", path, "--exp-dir", directory])
    tokenizer = load_tokenizer(config.data.lang_dir)
    config.model.vocab_size = tokenizer.vocab_size
    if config.data.lexicon_dir:
        phones = load_lexicon(config.data.lexicon_dir)
        config.model.inter_ctc_vocab_size = phones.vocab_size
    spent: List[float] = []
    parts = [(Objective, "__call__"), (torch.Tensor, "backward")]
    parts += [(FlatOptimizer, n) for n in "zero_grad scale_grad grad_norm step".split()]
    for owner, name in parts:
        setattr(owner, name, clocked(getattr(owner, name), spent))
    if config.data.cache:  # as after the first epoch
        for _ in train_loader(config.data, tokenizer, 1, 0):
            pass
    trainer = Trainer(config, tokenizer)
    step, began = trainer._step, [0.0]

    def counting(batches):
        done = trainer.progress.step
        if done == steps // 4:  # masks and buffers are made
            spent.clear()
            began[0] = time.perf_counter()
        if done == steps // 4 + steps:
            raise Measured(time.perf_counter() - began[0])
        return step(batches)

    trainer._step = counting
    try:
        trainer.run()
    except Measured as measured:
        total, work = measured.args[0], sum(spent)
        print(
            f"{steps} steps of {total / steps:.4f} s: losses, backward and optimiser"
            f" {work / steps:.4f} s, the rest {1 - work / total:.2%}"
        )
    writing(trainer, Path(directory))


class Measured(Exception):
    """Enough steps are done: their seconds."""


def clocked(function: Callable, spent: List[float]) -> Callable:
    """The function, with the seconds of its calls added to ``spent``."""

    def call(*args, **kwargs):
        begin = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            spent.append(time.perf_counter() - begin)

    return call


def writing(trainer: Trainer, directory: Path) -> None:
    """How long a checkpoint keeps the training, and how long it takes."""
    trainer.writer = CheckpointWriter()
    begin = time.perf_counter()
    path = directory / "checkpoint-0.pt"
    trainer._save(path, lambda: None)
    blocked = time.perf_counter() - begin
    trainer.writer.wait()
    print(
        f"a checkpoint of {path.stat().st_size / 2**20:.0f} MiB is written in"
        f" {time.perf_counter() - begin:.2f} s, {blocked:.2f} s of which training waits"
    )


def checkpoint(parameters: int) -> None:
    """Two checkpoints of a large model, the second begun when the first is written."""
    keep_freed_memory()  # as a training does
    values = {
        "model": torch.randn(parameters),
        "optimizer": [torch.randn(parameters) for _ in range(2)],
        "running_mean": torch.randn(parameters, dtype=torch.float64),
    }
    writer = CheckpointWriter()
    begin = time.perf_counter()
    writer.prepare(values)
    writer.wait()
    print(f"room is made, in the background, in {time.perf_counter() - begin:.2f} s")
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "checkpoint.pt"
        for _ in range(2):
            begin = time.perf_counter()
            writer.write(path, values, lambda: None)
            blocked = time.perf_counter() - begin
            writer.wait()
            print(
                f"{path.stat().st_size / 2**30:.2f} GiB are written in"
                f" {time.perf_counter() - begin:.2f} s, {blocked:.2f} s of which training waits"
            )


def compare(args: argparse.Namespace, directory: str) -> None:
    """The audio of a second by several processes and by one, in turns."""
    rates = {1: [], args.processes: []}
    for repeat in range(args.repeats):
        for processes in rates:
            exp = Path(directory) / f"{processes}-{repeat}"
            rates[processes].append(rate(args, processes, exp))
            print(f"{processes} processes: {rates[processes][-1]:.1f} x real time")
    one, many = (statistics.median(values) for values in rates.values())
    print(f"{args.processes} processes reach {many / one:.2f} of one's throughput")


def rate(args: argparse.Namespace, processes: int, exp: Path) -> float:
    """Times real time of a training, after its first reports."""
    every = max(1, args.steps // processes // 4)
    command = [sys.executable, "-m", "icefall_attn.bin.train", "--config", args.config]
    command += ["--exp-dir", str(exp), "--train.log_every", str(every)]
    command += ["--train.tensorboard", "false", "--train.valid_wer", "false"]
    if processes > 1:
        command = [*LAUNCHED, "--processes", str(processes), *command]
    seen: List[float] = []
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        found = re.search(r"([\d.]+) x real time", line)
        if found:
            seen.append(float(found[1]))
        if len(seen) == 6:
            process.terminate()
    process.wait()
    return statistics.median(seen[2:6])


if __name__ == "__main__":
    main()

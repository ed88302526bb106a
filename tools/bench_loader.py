#!/usr/bin/env python3
"""The training loader on a made corpus: seconds to the first batch, memory, speed.

    tools/bench_loader.py                     # 1,000,000 utterances, 2 loading processes
    tools/bench_loader.py --cuts 10000000 --workers 8

The manifest is made; all utterances share one file of features, so that reading them costs what it
costs from a warm disk. Each line is a process of its own: the very first start, which notes where
the cuts lie, a second one, and one that resumes in the middle of an epoch. Memory is the highest of
the training process.
"""

import argparse
import gzip
import json
import multiprocessing
import random
import resource
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from measuring import in_a_process, positive  # before torch

import numpy as np
from lhotse import Features, MonoCut, SupervisionSegment

from icefall_attn.data.features import FEATURE_DIM, FRAME_SHIFT, SAMPLE_RATE
from icefall_attn.data.loader import DataConfig, train_loader
from icefall_attn.data.sampling import Share
from icefall_attn.data.tokenizer import train_char

LONGEST = 20.0
TEXT = "A TEXT AS LONG AS THAT OF AN UTTERANCE OF LIBRISPEECH MAY WELL BE " * 3


class Measured(NamedTuple):
    """Seconds to the first batch, batches left, MiB, utterances a second."""

    start: float
    batches: int
    memory: float
    speed: float


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cuts", type=positive, default=1_000_000, help="utterances")
    parser.add_argument("--workers", type=int, default=2, help="loading processes")
    parser.add_argument(
        "--batches", type=positive, default=300, help="to load for the speed"
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        path = make_manifest(Path(directory), args.cuts)
        print(f"{args.cuts} cuts, {path.stat().st_size / 2**20:.0f} MiB compressed")
        print(
            f"{'':<16} {'first batch s':>13} {'batches':>8} {'MiB':>6} {'utterances/s':>12}"
        )
        half = 0
        for name in ("first start", "second start", "mid-epoch"):
            m = in_a_process(measure, str(path), args.workers, half, args.batches)
            half = m.batches // 2
            print(
                f"{name:<16} {m.start:>13.1f} {m.batches:>8} {m.memory:>6.0f} {m.speed:>12.0f}",
                flush=True,
            )


def make_manifest(directory: Path, count: int) -> Path:
    """A file of cuts of 1 to 20 s, all with parts of the same features."""
    frames = round(LONGEST / FRAME_SHIFT)
    stored = directory / "features.npy"
    np.save(stored, np.zeros((frames, FEATURE_DIM), dtype=np.float32))
    features = Features(
        "fbank", frames, FEATURE_DIM, FRAME_SHIFT, SAMPLE_RATE, 0.0, LONGEST,
        "numpy_files", str(directory), stored.name, channels=0,
    )  # fmt: skip
    spoken = SupervisionSegment("ID", "ID", 0.0, 0.0, text=TEXT, speaker="s")
    cut = MonoCut("ID", 0.0, 0.0, 0, supervisions=[spoken], features=features)
    item, rng = cut.to_dict(), random.Random(0)
    path = directory / "cuts.jsonl.gz"
    with gzip.open(path, "wt", compresslevel=1) as file:
        for number in range(count):
            item["id"] = item["supervisions"][0]["id"] = f"made-{number:09d}"
            duration = round(min(LONGEST, rng.lognormvariate(2.3, 0.5)), 2)
            item["duration"] = item["supervisions"][0]["duration"] = duration
            print(json.dumps(item), file=file)
    return path


def measure(path: str, workers: int, skip: int, batches: int) -> Measured:
    """The loader of epoch 2, from a process's start on."""
    # A process that was spawned would spawn its own too; those of training are forked.
    multiprocessing.set_start_method("fork", force=True)
    cfg = DataConfig(train_cuts=[path], num_workers=workers)
    tokenizer = train_char([TEXT], keep_spaces=True)
    begin = time.perf_counter()
    loader = train_loader(cfg, tokenizer, epoch=2, seed=0, share=Share(turns=skip))
    loaded = iter(loader)
    next(loaded)
    first = time.perf_counter()
    utterances = sum(len(batch.ids) for batch, _ in zip(loaded, range(batches)))
    speed = utterances / (time.perf_counter() - first)
    if workers:
        loaded.close()  # its processes
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Measured(first - begin, len(loader), memory, speed)


if __name__ == "__main__":
    main()

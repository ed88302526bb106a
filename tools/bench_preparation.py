#!/usr/bin/env python3
"""Time and memory of what comes after the features, for manifests of a million cuts.

    tools/bench_preparation.py --cuts 1000000

makes the manifests of a corpus without audio (words and durations about as in read speech) in a
temporary directory and lets each stage work on them, in a process of its own. Memory is the peak of
the whole process, the libraries' share included.
"""

import argparse
import contextlib
import gzip
import io
import json
import resource
import runpy
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Dict, Tuple

from measuring import in_a_process, positive  # before torch

import numpy as np

from icefall_attn.environment import why_no_k2

LOCAL = Path(__file__).resolve().parents[1] / "local"
WORDS = 30_000
WORDS_PER_SECOND = 2.7


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sizes = {"cuts": (1_000_000, "utterances"), "vocab-size": (500, "pieces of words")}
    for name, (default, meaning) in sizes.items():
        parser.add_argument(
            f"--{name}",
            type=positive,
            default=default,
            help=f"{meaning} (default: {default})",
        )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        made = Path(directory)
        write_corpus(made, args.cuts)
        cuts = str(made / "bench_cuts_train.jsonl.gz")
        lang = ("--lang-dir", str(made / "lang"))
        tokens = ("--supervisions", str(made / "bench_supervisions_train.jsonl.gz"))
        kind = ("--kind", "bpe", "--vocab-size", str(args.vocab_size))
        stages: Dict[str, Tuple[Any, ...]] = {
            "shuffle": (shuffle, cuts, args.cuts),
            "tokens": (program, "prepare_tokens.py", *tokens, *kind, *lang),
            "n-grams": (
                *(
                    program,
                    "train_ngram.py",
                    *tokens,
                    "--output",
                    str(made / "lm.arpa"),
                ),
                *("--min-count", "2"),
            ),
            "graph": (program, "compile_lg.py", "--arpa", str(made / "lm.arpa"), *lang),
            "validate": (
                program,
                "validate_data.py",
                "--cuts",
                cuts,
                *lang,
                "--load",
                "0",
            ),
            "statistics": (program, "describe_data.py", "--cuts", cuts, *lang),
            "first batch": (first_batch, cuts, str(made / "lang")),
        }
        if why_no_k2():
            print(f"without the graph, as {why_no_k2()}")
            del stages["graph"]
        print(f"{args.cuts} cuts: seconds, those of a processor, per million cuts, MiB")
        for name, call in stages.items():
            seconds, busy, peak = in_a_process(measure, *call)
            each = busy / args.cuts * 1e6
            print(
                f"{name:12} {seconds:8.1f} {busy:8.1f} {each:8.1f} {peak:8.0f}",
                flush=True,
            )


def write_corpus(directory: Path, count: int) -> None:
    """Writes `bench_{supervisions,cuts}_train.jsonl.gz` with ``count`` items each."""
    rng = np.random.default_rng(0)
    letters, weights = list("ETAOINSHRDLUCMFYWGPBVK"), 1 / np.arange(4, 26)
    lengths = rng.integers(1, 12, WORDS)
    words = np.array(
        ["".join(rng.choice(letters, n, p=weights / weights.sum())) for n in lengths]
    )
    frequency = np.cumsum(1 / np.arange(3, WORDS + 3))
    names = ("supervisions", "cuts")
    paths = [directory / f"bench_{name}_train.jsonl.gz" for name in names]
    with gzip.open(paths[0], "wb", 1) as spoken, gzip.open(paths[1], "wb", 1) as cuts:
        for index in range(count):
            duration = round(float(rng.triangular(1.0, 15.0, 18.0)), 2)
            draws = rng.random(1 + int(duration * WORDS_PER_SECOND)) * frequency[-1]
            text = " ".join(words[np.searchsorted(frequency, draws)])
            cut = make_cut(index, duration, text)
            for file, item in ((spoken, cut["supervisions"][0]), (cuts, cut)):
                file.write(json.dumps(item).encode() + b"\n")


def make_cut(index: int, duration: float, text: str) -> Dict[str, Any]:
    """A cut as a line of a manifest, with features that do not exist."""
    speaker, frames = str(index % 2000), round(duration * 100)
    name = f"{speaker}-{index // 2000:04d}-{index:07d}"
    span = {"start": 0.0, "duration": duration}
    spoken = {"id": name, "recording_id": name, **span, "channel": 0}
    samples = {"sampling_rate": 16000, "num_samples": frames * 160}
    features = {"type": "kaldi-fbank", "num_frames": frames, "num_features": 80}
    stored = {"storage_type": "lilcom_chunky", "storage_path": "/data/feats/00000.lca"}
    source = {"type": "file", "channels": [0], "source": f"/data/audio/{name}.flac"}
    return {
        **{"id": name, **span, "channel": 0},
        "supervisions": [{**spoken, "text": text, "speaker": speaker}],
        "features": {
            **{**features, "frame_shift": 0.01, "sampling_rate": 16000, **span},
            **{**stored, "storage_key": f"{index * 70_000},35000,35000", "channels": 0},
        },
        "recording": {"id": name, "sources": [source], **samples, "duration": duration},
        "type": "MonoCut",
    }


def measure(call: Callable[..., Any], *arguments: Any) -> Tuple[float, float, float]:
    """Seconds that a call takes, seconds of a processor, MiB that its process had at most."""
    start, busy_before = time.perf_counter(), time.process_time()
    with contextlib.redirect_stdout(io.StringIO()):
        call(*arguments)
    seconds = time.perf_counter() - start
    busy = time.process_time() - busy_before
    return seconds, busy, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def program(name: str, *options: str) -> None:
    """Runs a program of `local/`."""
    sys.argv = [name, *options]
    try:
        runpy.run_path(str(LOCAL / name), run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise RuntimeError(f"{name}: {end.code}")


def shuffle(cuts: str, count: int) -> None:
    """What `compute_fbank.py` does with all cuts once their features are there."""
    from icefall_attn.data.manifests import read_lines, shuffled_lines, write_lines

    directory = Path(cuts).parent
    lines = shuffled_lines(read_lines(cuts), count, directory)
    write_lines(lines, directory / "shuffled.jsonl.gz")


def first_batch(cuts: str, lang_dir: str) -> None:
    """From nothing to the plan of a training's first epoch."""
    from icefall_attn.data.loader import DataConfig, train_loader
    from icefall_attn.data.tokenizer import load_tokenizer

    config = DataConfig(train_cuts=[cuts], lang_dir=lang_dir)
    len(train_loader(config, load_tokenizer(lang_dir), epoch=1, seed=0))


if __name__ == "__main__":
    main()

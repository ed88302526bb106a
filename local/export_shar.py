#!/usr/bin/env python3
"""Puts cuts and their features or audio into Shar shards, for object stores and many nodes.

    export_shar.py --cuts data/fbank/librispeech_cuts_train.jsonl.gz --output-dir data/shar/train

Training reads the directory when data.train_cuts names it. A batch is drawn from one shard, so the
utterances are shuffled first. Shards should be many more than training processes (8 or more each),
and hold some hundred utterances. The directory appears when it is whole.
"""

import argparse
import logging
import multiprocessing
import os
import shutil
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Iterable, List

import numpy as np
import torch
from lhotse.shar import SharWriter

from icefall_attn.data.audio import use_libsndfile
from icefall_attn.data.corpus import Corpus
from icefall_attn.errors import UserError, run_main
from icefall_attn.files import temporary_path

FORMATS = {"features": ("lilcom", "numpy"), "recording": ("flac", "wav")}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--cuts", nargs="+", required=True, metavar="FILE", help="files of cuts"
    )
    parser.add_argument(
        "--output-dir", type=Path, required=True, metavar="DIR", help="of the shards"
    )
    parser.add_argument(
        "--format",
        choices=[name for names in FORMATS.values() for name in names],
        default="lilcom",
        help="of features: lilcom (compressed, rounded to 1/32 once more) or numpy (exact); of audio, for"
        " training with data.on_the_fly: flac or wav",
    )
    parser.add_argument(
        "--shard-size",
        type=int,
        default=1000,
        metavar="N",
        help="utterances in a shard",
    )
    parser.add_argument(
        "--nj", type=int, default=min(8, os.cpu_count() or 1), help="processes"
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace a directory that is there"
    )
    args = parser.parse_args()
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    for name in ("shard_size", "nj"):
        if getattr(args, name) < 1:
            option = name.replace("_", "-")
            raise UserError(f"--{option} is {getattr(args, name)}; give 1 or more")
    if args.output_dir.exists() and not args.overwrite:
        raise UserError(f"{args.output_dir} is there; --overwrite replaces it")
    temporary = temporary_path(args.output_dir)
    try:
        shards = export(args.cuts, temporary, args.format, args.shard_size, args.nj)
        if args.output_dir.exists():
            shutil.rmtree(args.output_dir)
        os.replace(temporary, args.output_dir)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    logging.info("%s: %d shards", args.output_dir, shards)


def export(paths: List[str], directory: Path, form: str, size: int, nj: int) -> int:
    """Writes all cuts of some files, shuffled; returns the number of shards."""
    (field,) = [field for field, names in FORMATS.items() if form in names]
    corpus = Corpus(paths, on_the_fly=field == "recording")
    corpus.check_names()
    order = np.random.default_rng(0).permutation(len(corpus))
    directory.mkdir(parents=True)
    parts = [order[start : start + size] for start in range(0, len(order), size)]
    work = (corpus, directory, field, form)
    if nj == 1:
        _init(*work)
        _follow(map(_write_shard, range(len(parts)), parts), len(parts))
        return len(parts)
    # Processes that are spawned do not inherit torch's threads, which a fork can lock up.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(nj, len(parts)), context, _init, work) as executor:
        _follow(executor.map(_write_shard, range(len(parts)), parts), len(parts))
    return len(parts)


def _follow(written: Iterable[None], count: int) -> None:
    for done, _ in enumerate(written, 1):
        if done % 100 == 0:
            logging.info("%d of %d shards", done, count)


def _init(*work) -> None:
    global _work
    _work = work
    torch.set_num_threads(1)
    use_libsndfile()


def _write_shard(number: int, utterances: np.ndarray) -> None:
    corpus, directory, field, form = _work
    other = "recording" if field == "features" else "features"
    with SharWriter(
        directory, {field: form}, shard_size=len(utterances), shard_offset=number
    ) as writer:
        for cut in corpus.read(utterances):
            corpus.check(cut)
            try:
                writer.write(replace(cut, **{other: None}))
            except Exception as error:  # of lhotse, libsndfile, lilcom or the system
                raise UserError(f"cannot export the {field} of {cut.id!r}: {error!r}")


if __name__ == "__main__":
    run_main(main)

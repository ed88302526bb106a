#!/usr/bin/env python3
"""Puts cuts and their features or audio into Shar shards, for object stores and many nodes.

    export_shar.py --cuts data/fbank/librispeech_cuts_train.jsonl.gz --output-dir data/shar/train

Training reads the directory when data.train_cuts names it. A batch is drawn from one shard, so the
utterances are shuffled first. Shards should be many more than training processes (8 or more each),
and hold some hundred utterances. The directory appears when it is whole.
"""

import logging
import multiprocessing
import os
import shutil
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Iterable, List, Literal

import numpy as np
import torch
from lhotse.shar import SharWriter

from icefall_attn.data.audio import use_libsndfile
from icefall_attn.data.corpus import Corpus, open_corpus
from icefall_attn.errors import UserError
from icefall_attn.files import temporary_path
from icefall_attn.program import run_program

STORAGE = {"features": ("lilcom", "numpy"), "recording": ("flac", "wav")}


def export_shar(
    cuts: List[str],
    output_dir: Path,
    storage: Literal["lilcom", "numpy", "flac", "wav"] = "lilcom",
    shard_size: int = 1000,
    nj: int = 4,
    overwrite: bool = False,
) -> None:
    """Writes the shards.

    Args:
      cuts: files of cuts.
      output_dir: of the shards.
      storage: of features, lilcom (compressed, rounded to 1/32 once more) or numpy (exact); of
        audio, for training with data.on_the_fly, flac or wav.
      shard_size: utterances in a shard.
      nj: processes.
      overwrite: replace a directory that is there.

    Raises:
      UserError: on options that do not fit, and cuts whose data cannot be read.
    """
    for name, value in (("--shard-size", shard_size), ("--nj", nj)):
        if value < 1:
            raise UserError(f"{name} is {value}; give 1 or more")
    if output_dir.exists() and not overwrite:
        raise UserError(f"{output_dir} is there; --overwrite replaces it")
    temporary = temporary_path(output_dir)
    try:
        shards = export(cuts, temporary, storage, shard_size, nj)
        if output_dir.exists():
            shutil.rmtree(output_dir)
        os.replace(temporary, output_dir)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    logging.info("%s: %d shards", output_dir, shards)


def export(paths: List[str], directory: Path, storage: str, size: int, nj: int) -> int:
    """Writes all cuts of some files, shuffled; returns the number of shards."""
    (field,) = [field for field, names in STORAGE.items() if storage in names]
    features = open_corpus(paths[0]).features
    corpus = Corpus(paths, on_the_fly=field == "recording", features=features)
    corpus.check_names()
    order = np.random.default_rng(0).permutation(len(corpus))
    directory.mkdir(parents=True)
    parts = [order[start : start + size] for start in range(0, len(order), size)]
    work = (corpus, directory, field, storage)
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
    corpus, directory, field, storage = _work
    other = "recording" if field == "features" else "features"
    with SharWriter(
        directory, {field: storage}, shard_size=len(utterances), shard_offset=number
    ) as writer:
        for cut in corpus.read(utterances):
            corpus.check(cut)
            try:
                writer.write(replace(cut, **{other: None}))
            except Exception as error:  # of lhotse, libsndfile, lilcom or the system
                raise UserError(f"cannot export the {field} of {cut.id!r}: {error!r}")


if __name__ == "__main__":
    run_program(export_shar, __doc__)

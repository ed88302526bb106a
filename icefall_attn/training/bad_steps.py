"""Keeps the batches whose gradient was not finite, for a look."""

import logging
from pathlib import Path
from typing import List

from icefall_attn.data.batch import Batch
from icefall_attn.training.checkpoint import save_checkpoint

MOST = 5  # files of each process


def dump(exp_dir: Path, step: int, rank: int, batches: List[Batch]) -> None:
    """Writes ``bad-steps/step-STEP-rank-RANK.pt``: ids, texts, tokens, features and lengths.

    `load_checkpoint` reads it. A few files are enough; a disk that is full is none of its business.
    """
    directory = exp_dir / "bad-steps"
    if len(list(directory.glob(f"*-rank-{rank}.pt"))) >= MOST:
        return
    path = directory / f"step-{step}-rank-{rank}.pt"
    values = {
        "ids": [batch.ids for batch in batches],
        "texts": [batch.texts for batch in batches],
        "tokens": [batch.tokens for batch in batches],
        "features": [batch.features for batch in batches],
        "feature_lengths": [batch.feature_lengths for batch in batches],
    }
    try:
        save_checkpoint(path, values)
    except OSError as error:
        logging.warning("%s was not written: %s", path, error.strerror or error)
    else:
        logging.warning("the batches of step %d are in %s", step, path)

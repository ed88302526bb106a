"""Shared by all tests."""

import pytest
import torch
from lhotse import LilcomChunkyWriter
from small_corpus import WORDS, make_cuts

from icefall_attn.data.features import feature_extractor
from icefall_attn.data.manifests import write_manifest
from icefall_attn.data.tokenizer import train_char


@pytest.fixture(autouse=True)
def _fixed_seed():
    torch.manual_seed(1234)


@pytest.fixture(scope="session")
def corpus_dir(tmp_path_factory):
    """Holds `train.jsonl.gz`, `more.jsonl.gz` (60 and 10 cuts) and `plain.jsonl.gz` (no features)."""
    directory = tmp_path_factory.mktemp("corpus")
    for prefix, count in (("train", 60), ("more", 10)):
        cuts = make_cuts(directory, prefix, count, seed=count)
        if prefix == "train":
            write_manifest(cuts, directory / "plain.jsonl.gz")
        cuts = cuts.compute_and_store_features(
            feature_extractor(),
            directory / f"{prefix}-feats",
            storage_type=LilcomChunkyWriter,
            progress_bar=False,
        )
        write_manifest(cuts, directory / f"{prefix}.jsonl.gz")
    return directory


@pytest.fixture(scope="session")
def tokenizer():
    return train_char([" ".join(WORDS)], keep_spaces=True)

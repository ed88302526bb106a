"""A small corpus of noise, with features, for the tests of this folder."""

import numpy as np
import pytest
import soundfile
from lhotse import CutSet, LilcomChunkyWriter, Recording, SupervisionSegment

from icefall_attn.data.features import SAMPLE_RATE, feature_extractor
from icefall_attn.data.manifests import write_manifest
from icefall_attn.data.tokenizer import train_char

WORDS = "ONE TWO THREE FOUR".split()


def make_cuts(directory, prefix, count, seed):
    """Cuts of 0.3 to 2 s of noise, the text of one to three words."""
    rng = np.random.default_rng(seed)
    cuts = []
    for index in range(count):
        name = f"{prefix}-{index:03d}"
        samples = 0.1 * rng.standard_normal(int(rng.uniform(0.3, 2.0) * SAMPLE_RATE))
        path = directory / f"{name}.wav"
        soundfile.write(path, samples.astype(np.float32), SAMPLE_RATE)
        cut = Recording.from_file(path, recording_id=name).to_cut().with_id(name)
        text = " ".join(rng.choice(WORDS, rng.integers(1, 4)))
        cut.supervisions = [
            SupervisionSegment(name, name, 0.0, cut.duration, text=text)
        ]
        cuts.append(cut)
    return CutSet.from_cuts(cuts)


@pytest.fixture(scope="session")
def corpus_dir(tmp_path_factory):
    """Holds the cuts `train` (60), `more` (10) and `plain` (`train` without features)."""
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

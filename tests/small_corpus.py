"""A small corpus of noise, for tests that need cuts."""

import numpy as np
import soundfile
from lhotse import CutSet, Recording, SupervisionSegment

from icefall_attn.data.features import SAMPLE_RATE

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

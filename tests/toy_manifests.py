"""Manifests of a few utterances of noise, for tests of the data-preparation programs."""

import numpy as np
import soundfile
from lhotse import Recording, SupervisionSegment

from icefall_attn.data.manifests import write_part

TEXTS = ("ONE TWO", "TWO", "THREE ONE", "ONE", "TWO THREE")


def write_toy_part(directory, part, count):
    """`DIRECTORY/manifests/toy_{recordings,supervisions}_PART`, of PARTi.wav in the directory."""
    rng = np.random.default_rng(0)
    recordings, supervisions = [], []
    for index in range(count):
        name = f"{part}{index}"
        path = directory / f"{name}.wav"
        length = 8000 + 1234 * (index % 10)
        soundfile.write(path, 0.1 * rng.standard_normal(length), 16000)
        recordings.append(Recording.from_file(path, recording_id=name))
        text, speaker = TEXTS[index % len(TEXTS)], name[-1]
        supervisions.append(
            SupervisionSegment(
                name, name, 0, length / 16000, text=text, speaker=speaker
            )
        )
    write_part(directory / "manifests", "toy", part, recordings, supervisions)

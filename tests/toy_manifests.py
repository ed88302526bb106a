"""Manifests of a few utterances of noise, for tests of the data-preparation programs."""

import gzip
import json

import numpy as np
import soundfile
from lhotse import Recording, SupervisionSegment, load_manifest

from icefall_attn.data.manifests import write_part

# Options of compute_fbank.py: a copy of each utterance.
PERTURBED = ("--parts", "train", "--perturb", "train", "--speeds", 0.9, "--nj", 1)
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


def features(cuts):
    return {cut.id: cut.load_features() for cut in cuts}


def edited(manifests, change):
    """Changes the recordings and supervisions of the training part, two lists."""
    recordings, supervisions = (
        list(load_manifest(manifests / f"toy_{kind}_train.jsonl.gz"))
        for kind in ("recordings", "supervisions")
    )
    change(recordings, supervisions)
    for kind, items in (("recordings", recordings), ("supervisions", supervisions)):
        # By hand: lhotse's sets take no two items of one id.
        with gzip.open(manifests / f"toy_{kind}_train.jsonl.gz", "wt") as file:
            file.writelines(json.dumps(item.to_dict()) + "\n" for item in items)

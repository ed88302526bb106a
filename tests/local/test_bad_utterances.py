"""Utterances that cannot be used are left out and named; repaired ones are added."""

import numpy as np
import pytest
import soundfile
from lhotse import Recording, load_manifest
from toy_manifests import PERTURBED, edited, features

from icefall_attn.errors import UserError


def missing(path, recording, supervision):
    path.unlink()
    return "no such file"


def damaged(path, recording, supervision):
    path.write_bytes(b"RIFF")
    return "it cannot be read from"


def truncated_wav(path, recording, supervision):
    path.write_bytes(path.read_bytes()[:9000])
    cut = Recording.from_file(path)
    recording.num_samples, recording.duration = cut.num_samples, cut.duration
    supervision.duration = cut.duration
    return "is truncated: 8956 of 16000 bytes are there"


def truncated_flac(path, recording, supervision):
    samples, rate = soundfile.read(path)
    soundfile.write(path.with_suffix(".flac"), samples, rate)
    whole = path.with_suffix(".flac").read_bytes()
    path.with_suffix(".flac").write_bytes(whole[: len(whole) // 2])
    recording.sources[0].source = str(path.with_suffix(".flac"))
    return "it cannot be read from"


def shorter_than_its_manifest(path, recording, supervision):
    samples, rate = soundfile.read(path)
    soundfile.write(path, samples[:4000], rate)
    return "lasts 0.250 s, its manifest says 0.500"


def longer_than_its_manifest(path, recording, supervision):
    samples, rate = soundfile.read(path)
    soundfile.write(path, np.tile(samples, 2), rate)
    return "lasts 1.000 s, its manifest says 0.500"


def other_rate(path, recording, supervision):
    soundfile.write(path, soundfile.read(path)[0], 8000)
    return "has 8000 Hz, its manifest says 16000"


def not_numbers(path, recording, supervision):
    samples = np.full(8000, np.nan, np.float32)
    soundfile.write(path, samples, 16000, "FLOAT")
    return "samples that are not numbers"


def no_text(path, recording, supervision):
    supervision.text = " "
    return "its transcript is empty"


def no_duration(path, recording, supervision):
    supervision.duration = 0.0
    return "it lasts 0 s, not 0.1 to 50 s"


def a_minute(path, recording, supervision):
    soundfile.write(path, np.zeros(60 * 16000), 16000)
    recording.num_samples, recording.duration = 60 * 16000, 60.0
    supervision.duration = 60.0
    return "it lasts 60 s, not 0.1 to 50 s"


def beyond_its_recording(path, recording, supervision):
    supervision.start = 0.3
    return "it goes from 0.3 to 0.8 s of a recording of 0.5 s"


def no_recording(path, recording, supervision):
    supervision.recording_id = "another"
    return "there is not exactly one recording"


BAD = (
    *(missing, damaged, truncated_wav, truncated_flac, other_rate, not_numbers),
    *(shorter_than_its_manifest, longer_than_its_manifest, no_text, no_duration),
    *(a_minute, beyond_its_recording, no_recording),
)


@pytest.mark.parametrize("spoil", BAD)
def test_bad_utterances_are_listed_and_left_out(
    compute, manifests, tmp_path, caplog, spoil
):
    reasons = []

    def change(recordings, supervisions):
        path = tmp_path / "train0.wav"
        reasons.append(spoil(path, recordings[0], supervisions[0]))

    edited(manifests, change)
    output = tmp_path / "fbank"
    listed = output / "toy_left-out_train.txt"
    message = f"1 of 5 .* 0.01; {listed} lists them, first 'train0': .*{reasons[0]}"
    with pytest.raises(UserError, match=message):
        compute(output, *PERTURBED)
    assert not (output / "toy_cuts_train.jsonl.gz").exists()
    with caplog.at_level("INFO"):
        compute(output, *PERTURBED, "--max-bad-share", 0.2)
    assert any("1 utterances left out" in message for message in caplog.messages)
    (line,) = listed.read_text().splitlines()
    name, reason = line.split("\t")
    assert name == "train0" and reasons[0] in reason
    cuts = load_manifest(output / "toy_cuts_train.jsonl.gz")
    assert len(features(cuts)) == 8 and "train0" not in cuts


def test_ids_that_are_there_twice(compute, manifests, tmp_path):
    def repeat(recordings, supervisions):
        supervisions.append(supervisions[2])
        recordings.append(recordings[4])

    edited(manifests, repeat)
    compute(tmp_path / "fbank", *PERTURBED, "--max-bad-share", 0.5)
    listed = (tmp_path / "fbank/toy_left-out_train.txt").read_text()
    assert listed.splitlines() == [
        "train4\tthere is not exactly one recording with its recording_id",
        "train2\tan earlier utterance has the same id",
    ]
    cuts = load_manifest(tmp_path / "fbank/toy_cuts_train.jsonl.gz")
    assert len(cuts) == 8 and "train2" in cuts


def test_repaired_audio_is_added(compute, computed, tmp_path):
    audio = tmp_path / "train3.wav"
    whole = audio.read_bytes()
    audio.write_bytes(b"RIFF")
    options = (*PERTURBED, "--max-bad-share", 0.5)
    compute(tmp_path / "fbank", *options)
    cuts = tmp_path / "fbank/toy_cuts_train.jsonl.gz"
    before = features(load_manifest(cuts))
    audio.write_bytes(whole)
    computed.clear()
    compute(tmp_path / "fbank", *options)
    assert computed == ["train3", "train3_sp0.9"]
    after = features(load_manifest(cuts))
    assert len(after) == 10
    assert all(np.array_equal(after[name], before[name]) for name in before)
    assert not (tmp_path / "fbank/toy_left-out_train.txt").exists()

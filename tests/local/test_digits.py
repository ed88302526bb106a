"""The synthesised digits: a balanced plan, voices that parts do not share, manifests."""

import json
import shutil

import numpy as np
import pytest
import soundfile
from lhotse import load_manifest
from plan import ACCENTS, DIGITS, LONGEST, plan_corpus, plan_part
from prepare_digits import prepare_digits
from speaking import speak
from synthesize_digits import synthesize_digits

from icefall_attn.errors import UserError
from icefall_attn.synthesis.corpus import synthesize_corpus
from icefall_attn.synthesis.delivery import NOISES, VOICES

pytest.importorskip("espeakng_loader")

SIZES = {"train": 60, "dev": 10, "test": 13}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    directory = tmp_path_factory.mktemp("digits") / "corpus"
    synthesize_corpus(directory, plan_corpus(SIZES, seed=1), nj=1)
    return directory


def test_each_part_has_all_of_its_voices():
    planned = {p: {u.voice for u in plan_part(p, 240, 0)} for p in VOICES}
    assert planned == {part: set(voices) for part, voices in VOICES.items()}


def test_every_accent_sounds_different():
    sounds = speak((accent, "m8", "one two three") for accent in ACCENTS)
    assert len(sounds) == len(ACCENTS) == len(set(sounds))


def test_plan_is_balanced_and_repeatable():
    test = plan_part("test", 240, 0)
    assert test == plan_part("test", 240, 0) != plan_part("test", 240, 1)
    lengths = [len(u.text.split()) for u in test]
    assert sum(lengths) == 1080
    assert all(lengths.count(n) == 30 for n in range(1, LONGEST + 1))
    assert {w for u in test for w in u.text.split()} == set(DIGITS)
    assert {u.accent for u in test} == set(ACCENTS)
    assert {u.noise for u in test} == set(NOISES)
    assert all(120 <= u.words_per_minute <= 220 and 10 <= u.snr <= 30 for u in test)
    assert all(u.spoken.replace(",", "").upper() == u.text for u in test)
    assert len({u.id for u in test}) == 240


def test_training_voices_alone_are_played_at_other_tempos():
    tempos = [u.tempo for u in plan_part("train", 500, 0)]
    assert min(tempos) < 0.87 and max(tempos) > 1.18 and len(set(tempos)) > 30
    assert tempos[::2] == [1.0] * 250
    for part in ("dev", "test"):
        assert {u.tempo for u in plan_part(part, 100, 0)} == {1.0}


def test_audio(corpus):
    for part, size in SIZES.items():
        paths = sorted((corpus / part).glob("*.wav"))
        assert len(paths) == size
        for path in paths:
            samples, rate = soundfile.read(path)
            assert rate == 16000 and samples.ndim == 1
            assert 0.3 < len(samples) / rate < 12
            assert 0.01 < np.abs(samples).max() < 1.0


def test_program_keeps_or_overwrites(tmp_path):
    times = []
    for overwrite in (False, False, True):
        synthesize_digits(
            tmp_path / "corpus", train=2, dev=1, test=1, nj=1, overwrite=overwrite
        )
        times.append({p.stat().st_mtime_ns for p in tmp_path.rglob("*.wav")})
    assert len(times[0]) == 4
    assert times[0] == times[1] and not times[1] & times[2]


def test_manifests(corpus, tmp_path):
    prepare_digits(corpus, tmp_path)
    speakers = {}
    for part, size in SIZES.items():
        recordings = load_manifest(tmp_path / f"digits_recordings_{part}.jsonl.gz")
        supervisions = load_manifest(tmp_path / f"digits_supervisions_{part}.jsonl.gz")
        assert len(recordings) == len(supervisions) == size
        assert {w for s in supervisions for w in s.text.split()} <= set(DIGITS)
        speakers[part] = {s.speaker for s in supervisions}
    assert not speakers["train"] & (speakers["dev"] | speakers["test"])


def test_damaged_corpora(corpus, tmp_path):
    with pytest.raises(UserError, match="utterances.jsonl is missing"):
        prepare_digits(tmp_path, tmp_path / "manifests")
    copy = tmp_path / "corpus"
    shutil.copytree(corpus, copy)
    lines = (copy / "utterances.jsonl").read_text().splitlines()
    utterances = [json.loads(line) for line in lines]
    victim = copy / "test" / f"{utterances[-1]['id']}.wav"
    victim.write_bytes(b"")
    with pytest.raises(UserError, match=f"{victim.name} cannot be read"):
        prepare_digits(copy, tmp_path / "manifests")
    victim.unlink()
    with pytest.raises(UserError, match=f"{victim.name} is missing"):
        prepare_digits(copy, tmp_path / "manifests")
    utterances[-1]["voice"] = utterances[0]["voice"]
    text = "\n".join(json.dumps(u) for u in utterances)
    (copy / "utterances.jsonl").write_text(text)
    with pytest.raises(UserError, match="is in training"):
        prepare_digits(copy, tmp_path / "manifests")
    (copy / "utterances.jsonl").write_text("{")
    with pytest.raises(UserError, match="is damaged"):
        prepare_digits(copy, tmp_path / "manifests")


def test_missing_synthesiser_is_one_line(run_program, tmp_path):
    (tmp_path / "espeakng_loader.py").write_text("raise ImportError('gone')")
    done = run_program(
        "digits",
        "synthesize_digits.py",
        "--output-dir",
        tmp_path / "corpus",
        path=tmp_path,
    )
    assert done.returncode == 1
    assert done.stderr.strip().splitlines() == [
        "error: the synthesiser is missing; install it with: pip install espeakng-loader"
    ]
    assert not (tmp_path / "corpus").exists()


def test_bad_sizes_are_refused(tmp_path):
    with pytest.raises(UserError, match="--dev is 0; give at least 1"):
        synthesize_digits(tmp_path / "corpus", dev=0)
    assert not list(tmp_path.iterdir())

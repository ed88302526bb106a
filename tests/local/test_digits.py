"""The synthesised digits: voices that differ, parts that do not share them, repeatable samples."""

import hashlib
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import soundfile
from lhotse import load_manifest
from plan import ACCENTS, DIGITS, LONGEST, NOISES, VOICES, plan_part
from prepare_digits import prepare_digits
from synthesize_digits import make_noise, synthesize_corpus

from icefall_attn.errors import UserError

pytest.importorskip("espeakng_loader")

SIZES = {"train": 60, "dev": 10, "test": 13}

# Espeak is one for a process and its state runs on: what uses it has a process to itself.
HASHES = """
import hashlib
from espeak import Synthesizer
from plan import ACCENTS, VOICES
synthesizer = Synthesizer()
speak = lambda accent, voice: synthesizer.speak("one two three", accent, voice, 170, 50, 50, 1)
for voice in [v for part in VOICES.values() for v in part]:
    print("voice", hashlib.md5(speak("en-us", voice).tobytes()).hexdigest())
for accent in ACCENTS:
    print("accent", hashlib.md5(speak(accent, "m8").tobytes()).hexdigest())
"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    directory = tmp_path_factory.mktemp("digits") / "corpus"
    synthesize_corpus(directory, SIZES, seed=1, nj=1)
    return directory


def checksums(directory):
    return {
        str(path.relative_to(directory)): hashlib.md5(path.read_bytes()).hexdigest()
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_no_voice_is_in_two_parts():
    everyone = [voice for part in VOICES.values() for voice in part]
    assert len(everyone) == len(set(everyone))
    planned = {p: {u.voice for u in plan_part(p, 240, 0)} for p in VOICES}
    assert planned == {part: set(voices) for part, voices in VOICES.items()}


def test_every_voice_and_accent_sounds_different():
    done = subprocess.run(
        [sys.executable, "-c", HASHES],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    for kind, count in (("voice", sum(map(len, VOICES.values()))), ("accent", 8)):
        hashes = [line for line in done.stdout.splitlines() if line.startswith(kind)]
        assert len(hashes) == count == len(set(hashes))


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


def test_samples_do_not_depend_on_processes(corpus, tmp_path):
    again = tmp_path / "corpus"
    synthesize_corpus(again, SIZES, seed=1, nj=2)
    assert checksums(again) == checksums(corpus)
    assert not list(tmp_path.glob(".*"))


def test_audio(corpus):
    for part, size in SIZES.items():
        paths = sorted((corpus / part).glob("*.wav"))
        assert len(paths) == size
        for path in paths:
            samples, rate = soundfile.read(path)
            assert rate == 16000 and samples.ndim == 1
            assert 0.3 < len(samples) / rate < 12
            assert 0.01 < np.abs(samples).max() < 1.0


def test_a_finished_corpus_is_kept(corpus):
    before = {p: p.stat().st_mtime_ns for p in corpus.rglob("*.wav")}
    synthesize_corpus(corpus, SIZES, seed=1, nj=1)
    assert {p: p.stat().st_mtime_ns for p in corpus.rglob("*.wav")} == before


def test_overwrite_speaks_a_finished_corpus_again(run_program, tmp_path):
    program = ("digits", "synthesize_digits.py", "--output-dir", tmp_path / "corpus")
    sizes = ("--train", 2, "--dev", 1, "--test", 1, "--nj", 1)
    times = []
    for options in ((), (), ("--overwrite",)):
        done = run_program(*program, *sizes, *options)
        assert done.returncode == 0, done.stderr
        times.append({p.stat().st_mtime_ns for p in tmp_path.rglob("*.wav")})
    assert times[0] == times[1] and not times[1] & times[2]


def test_other_options_make_another_corpus(tmp_path):
    sizes = {"train": 2, "dev": 1, "test": 1}
    synthesize_corpus(tmp_path / "corpus", sizes, seed=1, nj=1)
    first = checksums(tmp_path / "corpus")
    synthesize_corpus(tmp_path / "corpus", sizes, seed=2, nj=1)
    assert checksums(tmp_path / "corpus") != first
    (tmp_path / "other").mkdir()
    (tmp_path / "other/thesis.txt").write_text("mine")
    with pytest.raises(UserError, match="no digits corpus"):
        synthesize_corpus(tmp_path / "other", sizes, seed=1, nj=1)
    assert (tmp_path / "other/thesis.txt").exists()


@pytest.mark.parametrize("kind", NOISES)
def test_noise(kind):
    noise = make_noise(kind, 16001, np.random.default_rng(0))
    assert noise.shape == (16001,)
    assert np.mean(noise**2) == pytest.approx(1.0)
    power = np.abs(np.fft.rfft(noise)) ** 2
    low, high = power[200:1000].mean(), power[4000:8000].mean()
    slope = {
        "white": (0.8, 1.3),
        "pink": (5, 20),
        "brown": (50, 400),
        "babble": (10, 200),
    }
    assert slope[kind][0] < low / high < slope[kind][1]


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


def test_bad_sizes_are_refused(run_program, tmp_path):
    done = run_program(
        "digits", "synthesize_digits.py", "--output-dir", tmp_path / "c", "--dev", 0
    )
    assert done.returncode == 1
    assert done.stderr == "error: --dev is 0; give at least 1\n"

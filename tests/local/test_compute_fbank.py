"""Features of a tiny corpus: what is computed and kept, and what survives a kill."""

import gzip
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile
from lhotse import Recording, SupervisionSegment, load_manifest
from lhotse.serialization import deserialize_item
from toy_manifests import PERTURBED, edited, features, write_toy_part

from icefall_attn.data.features import compute_features
from icefall_attn.data.manifests import write_part
from icefall_attn.errors import UserError


def test_compute_fbank(compute, run_program, manifests, tmp_path):
    options = ("--parts", "train", "test", "--perturb", "train", "--speeds", 0.9, 1.1)
    options += ("--chunk-size", 2)
    compute(tmp_path / "numpy", *options, "--nj", 1, "--storage", "numpy")
    done = run_program(
        *("local", "compute_fbank.py", "--manifest-dir", manifests, "--prefix", "toy"),
        *("--output-dir", tmp_path / "lilcom", *options, "--nj", 2),
    )
    assert done.returncode == 0, done.stderr
    assert "x real time, --nj 2" in done.stderr
    found = {}
    for storage in ("numpy", "lilcom"):
        train = load_manifest(tmp_path / storage / "toy_cuts_train.jsonl.gz")
        test = load_manifest(tmp_path / storage / "toy_cuts_test.jsonl.gz")
        assert {c.id for c in train} == {
            f"train{i}{speed}" for i in range(5) for speed in ("", "_sp0.9", "_sp1.1")
        }
        assert [c.id for c in test] == ["test0", "test1", "test2"]
        lengths = {c.id: c.duration for c in train}
        assert lengths["train1_sp0.9"] == pytest.approx(lengths["train1"] / 0.9, 1e-3)
        assert not list((tmp_path / storage).rglob(".*"))
        found[storage] = features([*train, *test]), [c.id for c in train]
    (exact, order), (rounded, same_order) = found["numpy"], found["lilcom"]
    assert order == same_order != sorted(order)
    for name, values in exact.items():
        assert np.abs(values - rounded[name]).max() < 1 / 32


def test_a_finished_part_is_kept_and_a_changed_one_is_not(
    compute, computed, tmp_path, caplog
):
    output = tmp_path / "fbank"
    compute(output, "--parts", "test", "--nj", 1)
    cuts = output / "toy_cuts_test.jsonl.gz"
    before = cuts.stat().st_mtime_ns
    # A run that was killed leaves this behind.
    (output / "toy_feats_train").mkdir()
    (output / "toy_feats_train/00000-0123456789abcdef.lca").write_bytes(b"half")
    with caplog.at_level("INFO"):
        compute(output, "--parts", "train", "test", "--nj", 1)
    assert f"test: {cuts} is there, kept" in caplog.messages
    assert cuts.stat().st_mtime_ns == before
    assert len(load_manifest(output / "toy_cuts_train.jsonl.gz")) == 5
    assert len(list((output / "toy_feats_train").iterdir())) == 2
    compute(output, "--parts", "train", "--perturb", "train", "--nj", 1)
    assert len(load_manifest(output / "toy_cuts_train.jsonl.gz")) == 15
    assert len(list((output / "toy_feats_train").iterdir())) == 2


def test_corrected_transcripts_reach_the_cuts(
    compute, manifests, computed, tmp_path, caplog
):
    compute(tmp_path / "fbank", *PERTURBED)
    cuts = tmp_path / "fbank/toy_cuts_train.jsonl.gz"
    before = load_manifest(cuts)
    computed.clear()

    def correct(recordings, supervisions):
        supervisions[1].text = "TEN"

    edited(manifests, correct)
    with caplog.at_level("INFO"):
        compute(tmp_path / "fbank", *PERTURBED)
    assert "train: 2 transcripts changed, features kept" in caplog.messages
    after = load_manifest(cuts)
    assert not computed
    assert [c.id for c in after] == [c.id for c in before]
    texts = {c.id: c.supervisions[0].text for c in before}
    texts["train1"] = texts["train1_sp0.9"] = "TEN"
    assert {c.id: c.supervisions[0].text for c in after} == texts
    for old, new in zip(before, after):
        assert (old.load_features() == new.load_features()).all()
        assert new.supervisions[0].duration == pytest.approx(new.duration, abs=0.01)
    # And now nothing is left to do.
    written = cuts.stat().st_mtime_ns
    compute(tmp_path / "fbank", *PERTURBED)
    assert not computed and cuts.stat().st_mtime_ns == written


def test_only_the_chunk_with_other_audio_is_computed_again(
    compute, manifests, computed, tmp_path
):
    options = (*PERTURBED, "--chunk-size", 2)
    compute(tmp_path / "fbank", *options)
    (tmp_path / "train0.wav").rename(tmp_path / "moved.wav")
    computed.clear()

    def move(recordings, supervisions):
        recordings[0].sources[0].source = str(tmp_path / "moved.wav")

    edited(manifests, move)
    compute(tmp_path / "fbank", *options)
    assert sorted(computed) == ["train0", "train0_sp0.9", "train1", "train1_sp0.9"]
    cuts = load_manifest(tmp_path / "fbank/toy_cuts_train.jsonl.gz")
    assert cuts["train0"].recording.sources[0].source == str(tmp_path / "moved.wav")
    assert len(features(cuts)) == 10
    # Other features and another storage are other chunks.
    for change in (("--storage", "numpy"), ("--features", "fbank_pitch")):
        computed.clear()
        compute(tmp_path / "fbank", *options, *change)
        assert len(computed) == 10


def test_overwrite_computes_again(compute, computed, tmp_path):
    compute(tmp_path / "fbank", *PERTURBED)
    computed.clear()
    compute(tmp_path / "fbank", *PERTURBED)
    assert not computed
    compute(tmp_path / "fbank", *PERTURBED, "--overwrite")
    assert len(computed) == 10


def test_pitch_is_stored_as_it_is_computed_on_the_fly(compute, tmp_path):
    options = ("--parts", "test", "--nj", 1, "--storage", "numpy")
    compute(tmp_path / "fbank", *options, "--features", "fbank_pitch")
    for cut in load_manifest(tmp_path / "fbank/toy_cuts_test.jsonl.gz"):
        samples = cut.load_audio()[0]
        values = compute_features(samples, "fbank_pitch")
        assert cut.num_features == 83
        assert np.array_equal(cut.load_features(), values.numpy())


def test_features_on_the_fly_need_only_sound_audio(compute, computed, tmp_path):
    compute(tmp_path / "fbank", *PERTURBED, "--storage", "none")
    cuts = load_manifest(tmp_path / "fbank/toy_cuts_train.jsonl.gz")
    assert len(cuts) == 10 and not any(cut.has_features for cut in cuts)
    assert computed == [f"train{i}" for i in range(5)]
    (tmp_path / "train3.wav").write_bytes(b"RIFF")
    with pytest.raises(UserError, match="1 of 5 utterances .* 'train3': it cannot be"):
        compute(tmp_path / "fbank", *PERTURBED, "--storage", "none", "--overwrite")


@pytest.mark.parametrize(
    "options, message",
    [
        (("--parts", "train", "--nj", 0), "--nj is 0"),
        (("--parts", "train", "--chunk-size", 0), "--chunk-size is 0"),
        (("--parts", "train", "--max-bad-share", 1), "--max-bad-share is 1.0"),
        (("--parts", "train", "--perturb", "test"), "'test'"),
        (("--parts", "train", "--perturb", "train", "--speeds", 7), "has 7.0"),
        (("--parts", "dev"), "toy_supervisions_dev.jsonl.gz is missing"),
    ],
)
def test_compute_fbank_refuses(compute, tmp_path, options, message):
    with pytest.raises(UserError, match=message):
        compute(tmp_path / "fbank", *options)


def test_a_damaged_manifest_is_named(compute, manifests, tmp_path):
    path = manifests / "toy_recordings_train.jsonl.gz"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="toy_recordings_train.jsonl.gz cannot be read"):
        compute(tmp_path / "fbank", "--parts", "train", "--nj", 1)
    path.write_bytes(gzip.compress(b'{"sources": []}\n'))
    with pytest.raises(UserError, match="toy_recordings_train.jsonl.gz has a line"):
        compute(tmp_path / "fbank", "--parts", "train", "--nj", 1)


# What can be wrong with an utterance: each changes the audio file, the recording or the supervision,
# and gives the reason that must be listed.


def test_audio_of_another_rate_and_segments_of_it(compute, tmp_path):
    """Two utterances of one recording of 8 kHz: at 16 kHz, each with its own part."""
    rng = np.random.default_rng(0)
    soundfile.write(tmp_path / "long.wav", 0.1 * rng.standard_normal(16000), 8000)
    recording = Recording.from_file(tmp_path / "long.wav", recording_id="long")
    spoken = [
        SupervisionSegment(name, "long", start, 0.75, text="ONE")
        for name, start in (("b", 1.25), ("a", 0.25))
    ]
    write_part(tmp_path / "manifests", "toy", "dev", [recording], spoken)
    options = ("--parts", "dev", "--nj", 1, "--storage", "numpy")
    compute(tmp_path / "fbank", *options)
    cuts = list(load_manifest(tmp_path / "fbank/toy_cuts_dev.jsonl.gz"))
    assert [(cut.id, cut.start, cut.duration) for cut in cuts] == [
        *(("b", 1.25, 0.75), ("a", 0.25, 0.75))
    ]
    for cut in cuts:
        assert cut.sampling_rate == 16000 and cut.supervisions[0].start == 0
        samples = cut.load_audio()[0]
        assert np.array_equal(cut.load_features(), compute_features(samples).numpy())


def program(*arguments, output, **options):
    root = Path(__file__).parents[2]
    return subprocess.Popen(
        [
            *arguments[:-1],
            *(sys.executable, str(root / "local/compute_fbank.py")),
            *("--prefix", "toy", "--parts", "many", "--output-dir", str(output)),
            *("--manifest-dir", str(arguments[-1]), "--chunk-size", "2"),
        ],
        env={**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1", **options},
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(output):
    return {p: p.stat().st_mtime_ns for p in output.glob("toy_feats_many/*.jsonl.gz")}


def test_a_killed_run_goes_on_where_it_was(tmp_path, compute):
    write_toy_part(tmp_path, "many", 160)
    output = tmp_path / "fbank"
    killed = program(tmp_path / "manifests", output=output)
    while len(finished(output)) < 5:
        assert killed.poll() is None, killed.stderr.read()
        time.sleep(0.01)
    killed.kill()
    # Its workers end too: they hold its stderr.
    killed.communicate(timeout=20)
    before = finished(output)
    assert 5 <= len(before) < 80
    assert not (output / "toy_cuts_many.jsonl.gz").exists()
    compute(output, "--parts", "many", "--nj", 1, "--chunk-size", 2)
    after = finished(output)
    assert len(after) == 80 and before.items() <= after.items()
    compute(tmp_path / "whole", "--parts", "many", "--nj", 1)
    cuts, others = (
        load_manifest(directory / "toy_cuts_many.jsonl.gz")
        for directory in (output, tmp_path / "whole")
    )
    assert [cut.id for cut in cuts] == [cut.id for cut in others]
    for cut, other in zip(cuts, others):
        assert np.array_equal(cut.load_features(), other.load_features())


MOUNT = ("unshare", "--map-root-user", "--mount", "sh", "-c")


@pytest.mark.parametrize("storage, nj", [("lilcom", 2), ("numpy", 1)])
@pytest.mark.skipif(
    shutil.which("unshare") is None
    or subprocess.run(
        [*MOUNT, "mount -t tmpfs x /mnt"], capture_output=True
    ).returncode,
    reason="no small file system can be mounted",
)
def test_a_full_disk_loses_nothing(tmp_path, storage, nj):
    write_toy_part(tmp_path, "many", 60)
    small, output = tmp_path / "small", tmp_path / "fbank"
    small.mkdir()
    # What is there when the program ends is copied out of the mount.
    script = (
        f'mount -t tmpfs -o size=300k x {small}; "$@" --storage {storage} --nj {nj};'
        f" code=$?; cp -r {small} {output}; exit $code"
    )
    run = program(*MOUNT, script, "sh", tmp_path / "manifests", output=small)
    _, message = run.communicate(timeout=100)
    assert run.returncode == 1
    assert f"error: the disk of {small} is full; what is finished is kept" in message
    assert "Traceback" not in message
    kept = finished(output)
    assert 0 < len(kept) < 30
    for path in kept:
        cuts = [deserialize_item(json.loads(line)) for line in gzip.open(path)]
        assert len(cuts) == 2
        for cut in cuts:
            # The mount is gone.
            stored = Path(cut.features.storage_path).relative_to(small)
            cut.features.storage_path = str(output / stored)
            assert len(cut.load_features()) == round(100 * cut.duration)
    assert not (output / "toy_cuts_many.jsonl.gz").exists()


def test_shares_of_the_work(compute, computed, tmp_path):
    """Each share computes chunks of its own; the run that joins them computes none."""
    options = ("--parts", "train", "test", "--chunk-size", 2, "--nj", 1)
    compute(tmp_path / "whole", *options)
    expected = sorted(computed)
    computed.clear()
    for share in ("2/3", "1/3", "3/3"):
        compute(tmp_path / "shares", *options, "--share", share)
    assert sorted(computed) == expected and len(expected) == len(set(expected))
    assert not (tmp_path / "shares/toy_cuts_train.jsonl.gz").exists()
    computed.clear()
    compute(tmp_path / "shares", *options)
    assert computed == []
    one, other = (
        load_manifest(tmp_path / name / "toy_cuts_train.jsonl.gz")
        for name in ("whole", "shares")
    )
    for name, values in features(one).items():
        assert np.array_equal(values, features(other)[name])
    for share in ("0/3", "4/3", "2", "a/b"):
        with pytest.raises(UserError, match="--share is"):
            compute(tmp_path / "shares", *options, "--share", share)
    with pytest.raises(UserError, match="do not go together"):
        compute(tmp_path / "shares", *options, "--share", "1/3", "--overwrite")

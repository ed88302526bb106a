"""Shar: what the manifest holds, in shards; trained on and decoded like a manifest."""

import logging
from dataclasses import replace

import pytest
import torch
from export_shar import export, export_shar
from lhotse import CutSet

from icefall_attn.data.loader import DataConfig, eval_loader, train_loader
from icefall_attn.data.sampling import Share
from icefall_attn.errors import UserError


@pytest.fixture(scope="module")
def shar(corpus_dir, tmp_path_factory, run_program):
    """Shar directories: `features` (exact) of 70 cuts, `lilcom` and `recording` of 60."""
    directory = tmp_path_factory.mktemp("shar")
    train, more, plain = (
        str(corpus_dir / f"{name}.jsonl.gz") for name in ("train", "more", "plain")
    )
    done = run_program(
        *("local", "export_shar.py", "--cuts", train, more, "--storage", "numpy"),
        *("--output-dir", directory / "features", "--shard-size", 8, "--nj", 2),
    )
    assert done.returncode == 0, done.stderr
    export([train], directory / "lilcom", "lilcom", 8, 1)
    export([plain], directory / "recording", "flac", 8, 1)
    return directory


@pytest.fixture
def cfg(corpus_dir):
    return DataConfig(
        train_cuts=[str(corpus_dir / f"{name}.jsonl.gz") for name in ("train", "more")],
        max_duration=5.0,
        num_buckets=2,
        num_workers=0,
    )


def contents(loader):
    """What the batches hold of each utterance."""
    found = {}
    for batch in loader:
        for i, name in enumerate(batch.ids):
            n = int(batch.feature_lengths[i])
            assert name not in found and not batch.features[i, n:].any()
            details = batch.texts[i], batch.tokens[i], batch.durations[i]
            found[name] = (batch.features[i, :n].clone(), details)
    return found


def assert_same(a, b, tolerance=0.0):
    assert a.keys() == b.keys()
    for name in a:
        assert a[name][1] == b[name][1]
        assert a[name][0].shape == b[name][0].shape
        assert (a[name][0] - b[name][0]).abs().max() <= tolerance


def test_layout(shar):
    names = sorted(path.name for path in (shar / "features").iterdir())
    assert names[:2] == ["cuts.000000.jsonl.gz", "cuts.000001.jsonl.gz"]
    assert len(names) == 2 * 9 and names[-1] == "features.000008.tar"
    # As lhotse reads it by itself.
    assert len({cut.id for cut in CutSet.from_shar(in_dir=shar / "features")}) == 70


def test_round_trip(cfg, shar, tokenizer):
    expected = contents(train_loader(cfg, tokenizer, 1, 0))
    cfg.train_cuts = [str(shar / "features")]
    for workers in (0, 2):
        cfg.num_workers = workers
        assert_same(contents(train_loader(cfg, tokenizer, 1, 0)), expected)
    assert_same(contents(eval_loader(cfg.train_cuts, cfg, tokenizer)), expected)


def test_round_trip_of_lilcom(cfg, shar, tokenizer):
    cfg.train_cuts = cfg.train_cuts[:1]
    expected = contents(train_loader(cfg, tokenizer, 1, 0))
    cfg.train_cuts = [str(shar / "lilcom")]
    assert_same(contents(train_loader(cfg, tokenizer, 1, 0)), expected, 1 / 64 + 1e-6)


def test_round_trip_of_audio(cfg, shar, corpus_dir, tokenizer):
    cfg = replace(cfg, on_the_fly=True, train_cuts=[str(corpus_dir / "plain.jsonl.gz")])
    expected = contents(train_loader(cfg, tokenizer, 1, 0))
    cfg.train_cuts = [str(shar / "recording")]
    assert_same(contents(train_loader(cfg, tokenizer, 1, 0)), expected, 1e-4)


def ids(cfg, tokenizer, *args, **kwargs):
    return [batch.ids for batch in train_loader(cfg, tokenizer, *args, **kwargs)]


def test_same_batches_whoever_loads(cfg, shar, tokenizer):
    cfg.train_cuts = [str(shar / "features"), str(shar / "recording")]
    with pytest.raises(UserError, match="features.000000.tar is missing"):
        train_loader(cfg, tokenizer, 1, 0)
    cfg.train_cuts = [str(shar / "features")]
    first = ids(cfg, tokenizer, 1, 0)
    for workers in (0, 1, 2):
        assert ids(replace(cfg, num_workers=workers), tokenizer, 1, 0) == first
    assert ids(cfg, tokenizer, 1, 0, share=Share(turns=4)) == first[4:]
    assert ids(cfg, tokenizer, 2, 0) != first != ids(cfg, tokenizer, 1, 1)


def test_utterances_that_are_left_out(cfg, shar, tokenizer, caplog):
    cfg.train_cuts = [str(shar / "lilcom")]
    cfg.min_utterance, cfg.max_utterance = 0.6, 1.6
    with caplog.at_level(logging.INFO):
        found = contents(train_loader(cfg, tokenizer, 1, 0))
    assert found and all(0.6 <= details[2] <= 1.6 for _, details in found.values())
    assert f"left out {60 - len(found)} of 60" in caplog.text


def test_a_shard_is_read_once_an_epoch(cfg, shar, tokenizer, monkeypatch):
    from icefall_attn.data.shar import SharCuts

    read = []
    read_shard = SharCuts._read_shard
    monkeypatch.setattr(
        SharCuts, "_read_shard", lambda self, n: read.append(n) or read_shard(self, n)
    )
    cfg.train_cuts = [str(shar / "features")]
    for epoch in (1, 2):
        read.clear()
        ids(cfg, tokenizer, epoch, 3)
        assert sorted(read) == list(range(9))


def test_processes_read_their_own_shards(cfg, shar, tokenizer):
    cfg.train_cuts = [str(shar / "features")]
    parts = [ids(cfg, tokenizer, 1, 0, Share(rank, 2)) for rank in range(2)]
    assert len(parts[0]) == len(parts[1])
    names = [{name for batch in part for name in batch} for part in parts]
    assert len(names[0]) + len(names[1]) == len(names[0] | names[1]) == 70
    with pytest.raises(UserError, match="fewer shards than the 10 training processes"):
        train_loader(cfg, tokenizer, 1, 0, Share(0, 10))


def test_what_does_not_fit(cfg, shar, corpus_dir, tokenizer, tmp_path):
    shar_path, manifest = str(shar / "features"), str(corpus_dir / "more.jsonl.gz")
    for change, message in (
        ({"train_cuts": [shar_path, manifest]}, "files of cuts or Shar directories"),
        ({"train_cuts": [shar_path], "on_the_fly": True}, "recording.000000.tar"),
        (
            {"train_cuts": [shar_path], "sort_first_epoch": True},
            "sort_first_epoch=true",
        ),
        ({"train_cuts": [str(tmp_path)]}, "is no Shar directory"),
    ):
        with pytest.raises(UserError, match=message):
            train_loader(replace(cfg, **change), tokenizer, 1, 0)


@pytest.mark.parametrize("workers", [0, 2])
def test_damaged_shard(cfg, shar, tokenizer, tmp_path, workers):
    for path in (shar / "lilcom").iterdir():
        data = path.read_bytes()
        damaged = path.name == "features.000003.tar"
        (tmp_path / path.name).write_bytes(data[: len(data) // 2] if damaged else data)
    cfg = replace(cfg, train_cuts=[str(tmp_path)], num_workers=workers)
    with pytest.raises(UserError, match="features.000003.tar") as caught:
        ids(cfg, tokenizer, 1, 0)
    assert "\n" not in str(caught.value)


def test_program_is_careful(corpus_dir, tmp_path):
    target = tmp_path / "shar"
    more, plain = ([str(corpus_dir / f"{n}.jsonl.gz")] for n in ("more", "plain"))
    with pytest.raises(UserError, match="--shard-size is 0"):
        export_shar(more, target, shard_size=0)
    with pytest.raises(UserError, match="has no features"):
        export_shar(plain, target, nj=1)
    assert not list(tmp_path.iterdir())
    export_shar(more, target, nj=1)
    before = list(target.iterdir())
    with pytest.raises(UserError, match="--overwrite replaces it"):
        export_shar(more, target, nj=1)
    export_shar(more, target, nj=1, shard_size=5, overwrite=True)
    assert len(before) == 2 and len(list(target.iterdir())) == 4
    assert [path.name for path in tmp_path.iterdir()] == ["shar"]


def test_distortion_is_that_of_the_manifest(cfg, shar, corpus_dir, tokenizer):
    cfg.noise_cuts = [str(corpus_dir / "more.jsonl.gz")]
    expected = contents(train_loader(cfg, tokenizer, 3, 1))
    cfg.train_cuts = [str(shar / "features")]
    assert_same(contents(train_loader(cfg, tokenizer, 3, 1)), expected)
    clean = contents(train_loader(replace(cfg, noise_cuts=[]), tokenizer, 3, 1))
    assert any(not torch.equal(clean[n][0], expected[n][0]) for n in clean)

"""Batches: the same for the same seed, whatever loads them; nothing lost, nothing twice."""

import logging
import shutil
from dataclasses import replace

import pytest
import torch
from lhotse import load_manifest

from icefall_attn.data.corpus import Corpus
from icefall_attn.data.features import FEATURE_DIM
from icefall_attn.data.loader import DataConfig, eval_loader, train_loader
from icefall_attn.data.manifests import write_manifest
from icefall_attn.data.sampling import Share
from icefall_attn.errors import UserError


@pytest.fixture
def cfg(corpus_dir):
    return DataConfig(
        train_cuts=[str(corpus_dir / "train.jsonl.gz")],
        max_duration=8.0,
        num_buckets=4,
        num_workers=0,
    )


def ids(loader):
    return [batch.ids for batch in loader]


def flat(loader):
    return [i for batch in loader for i in batch.ids]


def same(a, b):
    return (
        a.ids == b.ids
        and torch.equal(a.features, b.features)
        and torch.equal(a.feature_lengths, b.feature_lengths)
        and (a.texts, a.tokens, a.durations) == (b.texts, b.tokens, b.durations)
    )


def test_batch_contents(cfg, corpus_dir, tokenizer):
    cuts = {c.id: c for c in load_manifest(corpus_dir / "train.jsonl.gz")}
    for batch in train_loader(cfg, tokenizer, 1, 0):
        lengths = batch.feature_lengths
        assert batch.features.dtype == torch.float32 and lengths.dtype == torch.int64
        assert batch.features.shape == (len(batch.ids), int(lengths.max()), FEATURE_DIM)
        for i, name in enumerate(batch.ids):
            stored = torch.from_numpy(cuts[name].load_features())
            assert torch.equal(batch.features[i, : lengths[i]], stored)
            assert not batch.features[i, lengths[i] :].any()
            assert batch.texts[i] == cuts[name].supervisions[0].text
            assert tokenizer.decode(batch.tokens[i]) == batch.texts[i]
            assert batch.durations[i] == cuts[name].duration
        moved = batch.to("cpu")
        assert same(moved, batch)


def test_each_utterance_once_and_batches_bounded(cfg, tokenizer):
    batches = list(train_loader(cfg, tokenizer, 1, 0))
    names = [i for b in batches for i in b.ids]
    assert len(names) == len(set(names)) == 60
    assert all(max(b.durations) * len(b.ids) <= 8.0 for b in batches)
    # About as few as the sorted utterances would give.
    fewest = len(list(eval_loader(cfg.train_cuts, cfg, tokenizer)))
    assert len(batches) <= 1.2 * fewest


def test_same_seed_same_batches(cfg, tokenizer):
    loader = train_loader(cfg, tokenizer, 2, 7)
    first = ids(loader)
    assert first == ids(loader) == ids(train_loader(cfg, tokenizer, 2, 7))
    assert first != ids(train_loader(cfg, tokenizer, 3, 7))
    assert first != ids(train_loader(cfg, tokenizer, 2, 8))
    # Not the epochs of another seed either.
    assert first != ids(train_loader(cfg, tokenizer, 7, 2))
    assert first != ids(train_loader(cfg, tokenizer, 1, 8))


@pytest.mark.parametrize("change", [{"num_workers": 2}, {"cache": True}])
def test_batches_do_not_depend_on_who_loads(cfg, tokenizer, change):
    expected = list(train_loader(cfg, tokenizer, 2, 7))
    found = list(train_loader(replace(cfg, **change), tokenizer, 2, 7))
    assert len(found) == len(expected)
    assert all(map(same, found, expected))


def test_random_numbers_do_not_depend_on_workers(cfg, tokenizer):
    drawn = []
    for workers in (0, 2):
        torch.manual_seed(3)
        flat(train_loader(replace(cfg, num_workers=workers), tokenizer, 1, 0))
        drawn.append(torch.rand(4))
    assert torch.equal(*drawn)


@pytest.mark.parametrize("sort_first_epoch", [False, True])
def test_skipped_batches_are_not_loaded(cfg, tokenizer, monkeypatch, sort_first_epoch):
    cfg = replace(cfg, sort_first_epoch=sort_first_epoch)
    whole = ids(train_loader(cfg, tokenizer, 1, 7))
    loaded = []
    load = Corpus.load
    monkeypatch.setattr(
        Corpus,
        "load",
        lambda self, cut, *rest: loaded.append(cut.id) or load(self, cut, *rest),
    )
    rest = train_loader(cfg, tokenizer, 1, 7, share=Share(turns=5))
    assert ids(rest) == whole[5:]
    assert loaded == [i for batch in whole[5:] for i in batch]
    assert ids(train_loader(cfg, tokenizer, 1, 7, share=Share(turns=len(whole)))) == []


def test_first_epoch_sorted(cfg, tokenizer):
    cfg = replace(cfg, sort_first_epoch=True)
    durations = [d for b in train_loader(cfg, tokenizer, 1, 0) for d in b.durations]
    assert durations == sorted(durations) and len(durations) == 60
    later = [d for b in train_loader(cfg, tokenizer, 2, 0) for d in b.durations]
    assert later != sorted(later)


@pytest.mark.parametrize("workers", [0, 2])
def test_processes_share_the_batches(cfg, tokenizer, workers):
    for sort_first_epoch in (False, True):
        changed = replace(cfg, sort_first_epoch=sort_first_epoch, num_workers=workers)
        parts = [
            list(train_loader(changed, tokenizer, 1, 0, Share(rank, 5)))
            for rank in range(5)
        ]
        assert len({len(part) for part in parts}) == 1
        names = [i for part in parts for batch in part for i in batch.ids]
        assert len(names) == len(set(names)) == 60
        empty = [batch for part in parts for batch in part if not batch.ids]
        assert empty and all(b.features.shape == (0, 0, 80) for b in empty)


def test_processes_share_what_is_evaluated(cfg, corpus_dir, tokenizer):
    path = str(corpus_dir / "train.jsonl.gz")
    parts = [
        flat(eval_loader(path, cfg, tokenizer, 5.0, Share(r, 3))) for r in range(3)
    ]
    assert sorted(sum(parts, [])) == sorted(
        flat(eval_loader(path, cfg, tokenizer, 5.0))
    )
    assert all(parts)


def test_utterances_left_out_are_counted(cfg, corpus_dir, tokenizer, caplog):
    cuts = load_manifest(corpus_dir / "train.jsonl.gz")
    expected = {c.id for c in cuts if 0.5 <= c.duration <= 1.5}
    cfg = replace(cfg, min_utterance=0.5, max_utterance=1.5)
    with caplog.at_level(logging.INFO):
        assert set(flat(train_loader(cfg, tokenizer, 1, 0))) == expected
    assert f"left out {60 - len(expected)} of 60" in caplog.text


@pytest.mark.parametrize("max_duration", [0.5, 5.0, 1000.0])
def test_eval_sees_every_utterance_once(cfg, corpus_dir, tokenizer, max_duration):
    cfg = replace(cfg, min_utterance=0.5, max_utterance=1.5)
    paths = [str(corpus_dir / "train.jsonl.gz"), str(corpus_dir / "more.jsonl.gz")]
    loader = eval_loader(paths, cfg, tokenizer, max_duration)
    batches = list(loader)
    names = [i for b in batches for i in b.ids]
    assert len(names) == len(set(names)) == 70
    assert len(loader) == len(batches)
    durations = [d for b in batches for d in b.durations]
    assert durations == sorted(durations, reverse=True)
    for batch in batches:
        total = max(batch.durations) * len(batch.ids)
        assert total <= max_duration or len(batch.ids) == 1
    assert ids(loader) == [b.ids for b in batches]


@pytest.mark.parametrize("max_duration", [0, -1.0, float("nan")])
def test_eval_wants_room_in_a_batch(cfg, corpus_dir, tokenizer, max_duration):
    path = str(corpus_dir / "more.jsonl.gz")
    with pytest.raises(UserError, match=f"max_duration is {max_duration}"):
        eval_loader(path, cfg, tokenizer, max_duration)


def test_one_path_or_a_list(cfg, corpus_dir, tokenizer):
    path = str(corpus_dir / "more.jsonl.gz")
    assert flat(eval_loader(path, cfg, tokenizer)) == (
        flat(eval_loader([path], replace(cfg, num_workers=2), tokenizer))
    )


def test_several_training_files(cfg, corpus_dir, tokenizer):
    cfg.train_cuts.append(str(corpus_dir / "more.jsonl.gz"))
    names = flat(train_loader(cfg, tokenizer, 1, 0))
    assert len(names) == len(set(names)) == 70


@pytest.mark.parametrize("workers", [0, 2])
def test_on_the_fly_gives_the_stored_features(cfg, corpus_dir, tokenizer, workers):
    stored = {
        i: f[:n]
        for b in train_loader(cfg, tokenizer, 1, 0)
        for i, f, n in zip(b.ids, b.features, b.feature_lengths)
    }
    cfg = replace(
        cfg,
        train_cuts=[str(corpus_dir / "plain.jsonl.gz")],
        on_the_fly=True,
        num_workers=workers,
    )
    for batch in train_loader(cfg, tokenizer, 1, 0):
        for i, features, n in zip(batch.ids, batch.features, batch.feature_lengths):
            assert n == len(stored[i])
            # Stored ones are rounded to 1/32.
            assert (features[:n] - stored[i]).abs().max() < 1 / 32


def test_features_of_another_kind(cfg, corpus_dir, tokenizer):
    cfg = replace(cfg, features="fbank_pitch")
    with pytest.raises(UserError, match="80 dimensions, not the 83 of data.features"):
        train_loader(cfg, tokenizer, 1, 0)
    plain = [str(corpus_dir / "plain.jsonl.gz")]
    cfg = replace(cfg, train_cuts=plain, on_the_fly=True)
    batch = next(iter(train_loader(cfg, tokenizer, 1, 0)))
    assert batch.features.shape[2] == 83


def test_more_buckets_than_utterances(cfg, corpus_dir, tokenizer):
    cfg = replace(cfg, train_cuts=[str(corpus_dir / "more.jsonl.gz")], num_buckets=500)
    assert len(flat(train_loader(cfg, tokenizer, 1, 0))) == 10
    assert len(flat(train_loader(replace(cfg, num_buckets=1), tokenizer, 1, 0))) == 10


def test_single_utterance(cfg, corpus_dir, tokenizer, tmp_path):
    cuts = load_manifest(corpus_dir / "more.jsonl.gz").subset(first=1)
    write_manifest(cuts, tmp_path / "one.jsonl.gz")
    cfg = replace(cfg, train_cuts=[str(tmp_path / "one.jsonl.gz")], max_duration=0.01)
    assert flat(train_loader(cfg, tokenizer, 1, 0)) == ["more-000"]


def test_a_changed_file_is_read_anew(cfg, corpus_dir, tokenizer, tmp_path):
    path = tmp_path / "cuts.jsonl.gz"
    cuts = load_manifest(corpus_dir / "more.jsonl.gz")
    cfg = replace(cfg, cache=True)
    for count in (4, 7):
        write_manifest(cuts.subset(first=count), path)
        assert len(flat(eval_loader(str(path), cfg, tokenizer))) == count


def test_cache_reads_features_once(cfg, tokenizer, monkeypatch):
    cfg = replace(cfg, cache=True)
    computed = []
    compute = Corpus._compute
    monkeypatch.setattr(
        Corpus,
        "_compute",
        lambda self, cut, *rest: computed.append(cut.id) or compute(self, cut, *rest),
    )
    cfg.min_utterance = 0.11  # a corpus that no other test has loaded
    for epoch in (1, 2):
        flat(train_loader(cfg, tokenizer, epoch, 0))
    assert len(computed) == len(set(computed)) == 60


def test_options_that_do_not_fit(cfg, tokenizer, corpus_dir):
    for change, message in (
        ({"cache": True, "num_workers": 2}, "num_workers=2"),
        ({"max_duration": 0.0}, "max_duration is 0.0"),
        ({"num_workers": -1}, "num_workers is -1"),
        ({"num_buckets": 0}, "num_buckets is 0"),
        ({"train_cuts": []}, "no file of cuts"),
        ({"train_cuts": ["nowhere.jsonl.gz"]}, "nowhere.jsonl.gz is missing"),
        ({"min_utterance": 20.0}, "no utterance of 20"),
        ({"train_cuts": [str(corpus_dir / "plain.jsonl.gz")]}, "has no features"),
    ):
        with pytest.raises(UserError, match=message):
            train_loader(replace(cfg, **change), tokenizer, 1, 0)


@pytest.mark.parametrize("workers", [0, 2])
def test_missing_features_are_told_in_one_line(
    cfg, corpus_dir, tokenizer, workers, tmp_path
):
    cuts = load_manifest(corpus_dir / "more.jsonl.gz")
    for cut in cuts:
        cut.features.storage_path = str(tmp_path / "gone.lca")
    path = tmp_path / "cuts.jsonl.gz"
    write_manifest(cuts, path)
    cfg = replace(cfg, train_cuts=[str(path)], num_workers=workers)
    with pytest.raises(UserError) as caught:
        flat(train_loader(cfg, tokenizer, 1, 0))
    message = str(caught.value)
    assert "cannot load the features" in message and "gone.lca" in message
    assert "\n" not in message


def test_damaged_manifest(cfg, corpus_dir, tokenizer, tmp_path):
    path = tmp_path / "cuts.jsonl.gz"
    data = (corpus_dir / "train.jsonl.gz").read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(UserError, match="cuts.jsonl.gz"):
        flat(eval_loader(str(path), cfg, tokenizer))


@pytest.mark.parametrize("cache", [False, True])
def test_an_utterance_twice_is_refused(cfg, corpus_dir, tokenizer, tmp_path, cache):
    shutil.copy(corpus_dir / "more.jsonl.gz", tmp_path / "again.jsonl.gz")
    paths = [str(corpus_dir / "more.jsonl.gz"), str(tmp_path / "again.jsonl.gz")]
    with pytest.raises(UserError, match="there twice"):
        eval_loader(paths, replace(cfg, cache=cache), tokenizer)

"""The heaviest batches are tried first, and that changes nothing."""

import logging

import pytest
import torch
from training.test_trainer import make_trainer

from icefall_attn.data.batch import Batch
from icefall_attn.data.loader import train_loader
from icefall_attn.device import peak_memory_gib
from icefall_attn.errors import UserError
from icefall_attn.training import checkpoint as ckpt
from icefall_attn.training import memory


def make_batch(name, utterances, frames, labels):
    return Batch(
        ids=[f"{name}-{i}" for i in range(utterances)],
        features=torch.zeros(utterances, frames, 80),
        feature_lengths=torch.full((utterances,), frames),
        texts=[""] * utterances,
        tokens=[[1] * labels] * utterances,
        durations=[frames / 100] * utterances,
    )


def test_the_heaviest_by_each_measure():
    most = make_batch("most", 30, 100, 2)
    long = make_batch("long", 2, 1000, 3)
    talkative = make_batch("talkative", 25, 100, 40)
    light = make_batch("light", 3, 90, 9)
    chosen = memory.heaviest([light, most, long, talkative])
    assert [batch.ids[0] for batch in chosen] == ["most-0", "long-0", "talkative-0"]
    assert memory.heaviest([light, light]) == [light]


def test_the_loader_finds_them_without_reading_the_epoch(
    corpus_dir, tokenizer, tmp_path, monkeypatch
):
    config = make_trainer(corpus_dir, tmp_path / "exp", tokenizer).config
    loader = train_loader(config.data, tokenizer, 1, 42)
    sizes = [batch.features.shape[:2] for batch in loader]
    read = []
    batch = loader.corpus.batch
    monkeypatch.setattr(loader.corpus, "batch", lambda *a: read.append(1) or batch(*a))
    found = loader.heaviest(2)
    assert len(read) == len(found) <= 4 < len(sizes)
    padded = max(b.features.size(0) * b.features.size(1) for b in found)
    assert padded >= 0.95 * max(rows * frames for rows, frames in sizes)
    assert max(b.features.size(1) for b in found) == max(f for _, f in sizes)


def test_a_training_is_bit_for_bit_what_it_is_without(corpus_dir, tokenizer, tmp_path):
    """Random numbers, running statistics, counts of utterances left out: all of it."""
    saved = {}
    for check in (True, False):
        exp_dir = tmp_path / str(check)
        make_trainer(
            corpus_dir, exp_dir, tokenizer, dropout, max_steps=4, check_memory=check
        ).run()
        saved[check] = ckpt.load_checkpoint(exp_dir / "last.pt")
    for part in ("model", "optimizer", "running_mean", "random"):
        assert same(saved[True][part], saved[False][part])
    counts = [
        {k: v for k, v in saved[check]["progress"].items() if "seconds" not in k}
        for check in (True, False)
    ]
    for one in counts:
        one.pop("memory_gib")
    assert counts[0] == counts[1]


def same(one, other):
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return torch.equal(one, other) if torch.is_tensor(one) else one == other


def dropout(config):
    config.model.encoder.dropout = 0.1
    config.model.feature_norm = "running"


def test_the_report(corpus_dir, tokenizer, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    make_trainer(corpus_dir, tmp_path / "exp", tokenizer, max_steps=1)
    (line,) = [r.getMessage() for r in caplog.records if "heaviest" in r.getMessage()]
    taken, available = (float(line.split()[place]) for place in (1, 3))
    assert 0.05 < taken < available and "labels" in line


def test_what_does_not_fit_is_said_before_training(
    corpus_dir, tokenizer, tmp_path, monkeypatch
):
    def full(*_):
        raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB")

    monkeypatch.setattr(memory, "_rehearse", full)
    with pytest.raises(
        UserError, match=r"utterances of up to .* does not fit the memory; lower"
    ):
        make_trainer(corpus_dir, tmp_path / "exp", tokenizer, max_steps=1)


@pytest.mark.parametrize("slope, bend", [(0.01, 0.0), (0.01, 2e-6), (0.002, 0.0)])
def test_the_largest_that_fits(slope, bend):
    """Memory may grow faster than the line through two tries; then less is taken."""
    tried = []

    def need(duration):
        tried.append(duration)
        return 1.0 + slope * duration + bend * duration**2

    found = memory.fitting_duration(need, 10.0, 1500.0)
    assert need(found) <= memory.USED * 10.0 and found % 10 == 0 and len(tried) < 12
    larger = found + 20 if bend == 0 else 1.15 * found + 10  # rounding aside
    assert found == 1500 or need(larger) > memory.USED * 10.0
    with pytest.raises(UserError, match="batches of 60 s take 1.60 GiB of 1.00"):
        memory.fitting_duration(lambda d: 1.0 + 0.01 * d, 1.0, 1500.0)


def test_auto_is_found_once_and_kept(corpus_dir, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "LEAST_BATCHES", 8)
    limits = iter([peak_memory_gib() + 0.5, 1e9])
    monkeypatch.setattr(memory, "available_gib", lambda device: next(limits, 1e9))

    def auto(config):
        config.data.max_duration = "auto"

    first = make_trainer(corpus_dir, tmp_path / "exp", tokenizer, auto, num_epochs=1)
    duration = first.config.data.max_duration
    audio = sum(train_loader(first.config.data, tokenizer, 1, 42).corpus.durations)
    assert 10 <= duration <= max(audio / 8, 10)
    first.run()
    again = make_trainer(corpus_dir, tmp_path / "exp", tokenizer, auto, num_epochs=2)
    assert again.config.data.max_duration == duration and again.progress.epoch == 2
    again.run()

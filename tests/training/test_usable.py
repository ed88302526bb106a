"""Utterances that cannot be trained on are left out, named and counted."""

import logging

import pytest
import torch

from icefall_attn.data.batch import Batch
from icefall_attn.errors import UserError
from icefall_attn.training.objective import Objective, pad_labels
from icefall_attn.training.usable import UtteranceFilter
from icefall_attn.rnnt.config import LossConfig
from icefall_attn.transducer.model import Losses


def make_batch(lengths, tokens):
    return Batch(
        ids=[f"utt{i}" for i in range(len(lengths))],
        features=torch.randn(len(lengths), max(lengths), 80),
        feature_lengths=torch.tensor(lengths),
        texts=[""] * len(lengths),
        tokens=tokens,
        durations=[n / 100 for n in lengths],
    )


def test_bad_utterances_are_named_and_the_rest_goes_on(caplog):
    usable = UtteranceFilter()
    batch = make_batch([100, 10, 60, 50], [[], [1, 2, 3, 4, 5], [3] * 14, [3] * 9])
    with caplog.at_level(logging.WARNING):
        kept = usable(batch)
        usable(batch)
    assert kept.ids == ["utt2", "utt3"]
    assert "utt0: its transcript is empty" in caplog.text
    assert "utt1: 5 labels do not fit in 1 encoder frames" in caplog.text
    assert caplog.text.count("utt1") == 1  # named once, counted each time
    assert usable.total_dropped == 4
    assert kept.features.shape[1] == int(kept.feature_lengths.max())


def test_features_must_be_finite(caplog):
    batch = make_batch([50, 60], [[3], [4]])
    batch.features[0, 3, 2] = float("inf")
    with caplog.at_level(logging.WARNING):
        assert UtteranceFilter()(batch).ids == ["utt1"]
    assert "utt0: its features are not finite" in caplog.text


def test_limit_is_the_encoders_own_length():
    usable = UtteranceFilter()
    fits = ((60 - 1) // 2 - 1) // 2
    assert usable(make_batch([60], [[3] * fits])).ids == ["utt0"]
    assert usable(make_batch([60], [[3] * (fits + 1)])).ids == []


def test_the_run_stops_when_nearly_all_are_bad():
    usable = UtteranceFilter(patience=20)
    good, bad = make_batch([100] * 5, [[3]] * 5), make_batch([100] * 5, [[]] * 5)
    for _ in range(20):
        usable(good), usable(bad)
    with pytest.raises(UserError, match="could not be trained on"):
        for _ in range(8):
            usable(bad)


class InfiniteModel(torch.nn.Module):
    """Gives utterances whose first feature is above 100 an infinite loss."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(()))
        self.batches = []

    def forward(self, features, lengths, labels, label_lengths, config, inner=None):
        self.batches.append(features.size(0))
        loss = self.weight * features[:, 0, 0].abs()
        loss = loss.masked_fill(features[:, 0, 0] > 100, float("inf"))
        return Losses(loss, loss, None), lengths


def test_an_infinite_utterance_leaves_the_batch():
    batch = make_batch([50, 50, 50], [[3], [4], [5]])
    batch.features[1, 0, 0] = 1e3
    dropped = []
    model = InfiniteModel()
    objective = Objective(
        model, LossConfig(warm_steps=0), lambda i, why: dropped.append((i, why))
    )
    terms = objective(batch, step=5, progress=0.0)
    assert dropped == [("utt1", "its loss is not finite")]
    assert model.batches == [3, 2]
    expected = 1.5 * batch.features[[0, 2], 0, 0].abs().sum()
    torch.testing.assert_close(terms.total, expected)
    terms.total.backward()
    assert torch.isfinite(model.weight.grad)


def test_nothing_left_is_none():
    batch = make_batch([50], [[3]])
    batch.features[0, 0, 0] = 1e3
    objective = Objective(InfiniteModel(), LossConfig(), lambda *_: None)
    assert objective(batch, step=0, progress=0.0) is None


def test_pad_labels():
    labels, lengths = pad_labels([[5, 6], [7]], torch.device("cpu"))
    assert labels.tolist() == [[5, 6], [7, 0]] and lengths.tolist() == [2, 1]

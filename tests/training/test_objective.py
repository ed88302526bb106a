"""The weights of the losses at each point of a training."""

import pytest
import torch
from torch import nn

from icefall_attn.data.batch import Batch
from icefall_attn.rnnt.config import LossConfig
from icefall_attn.training.metrics import Metrics
from icefall_attn.training.objective import Objective
from icefall_attn.transducer.model import Losses


class Fixed(nn.Module):
    """Losses 1, 10 and 100 per utterance, five frames each."""

    def __init__(self, ctc: bool):
        super().__init__()
        self.ctc = ctc

    def forward(self, features, *rest):
        each = torch.ones(len(features))
        ctc = 100 * each if self.ctc else None
        return Losses(each, 10 * each, ctc), torch.full((len(features),), 5)


BATCH = Batch(
    ids=["a", "b"],
    features=torch.zeros(2, 20, 80),
    feature_lengths=torch.tensor([20, 20]),
    texts=["", ""],
    tokens=[[1], [2]],
    durations=[0.2, 0.2],
)


@pytest.mark.parametrize(
    "step, progress, total",
    [
        (0, 0.0, 0.5 + 70),
        (99, 0.0, 0.5 + 70),
        (100, 0.5, 0.5 + 1 + 50),
        (199, 0.5, 0.5 + 1 + 50),
        (200, 1.0, 0.5 + 10 + 30),
    ],
)
def test_weights_follow_the_schedule(step, progress, total):
    config = LossConfig(
        warm_steps=100, simple_scale=0.5, ctc_scale=0.7, ctc_scale_end=0.3
    )
    terms = Objective(Fixed(ctc=True), config, drop=None)(BATCH, step, progress)
    assert float(terms.total) == pytest.approx(2 * total)
    assert (float(terms.simple), float(terms.pruned), float(terms.ctc)) == (2, 20, 200)
    assert terms.frames == 10


def test_without_ctc():
    config = LossConfig(warm_steps=0, simple_scale=0.25)
    terms = Objective(Fixed(ctc=False), config, drop=None)(BATCH, 0, 0.0)
    assert float(terms.total) == pytest.approx(2 * (0.25 + 10)) and terms.ctc is None


def test_distillation_has_a_weight_of_its_own():
    """The term of models with two streams."""

    class Two(Fixed):
        def forward(self, features, *rest):
            losses, lengths = super().forward(features)
            return losses._replace(distillation=1000 * losses.simple), lengths

    config = LossConfig(warm_steps=0, simple_scale=0.25, distillation_scale=0.5)
    terms = Objective(Two(ctc=False), config, drop=None)(BATCH, 0, 0.0)
    assert float(terms.total) == pytest.approx(2 * (0.25 + 10 + 500))
    metrics = Metrics()
    metrics.add_losses(terms)
    metrics.add_losses(terms)
    assert metrics.take()[0]["distillation"] == pytest.approx(2000 / terms.frames)

"""SpecAugment: on the valid part only, in training only, under the seed."""

import random

import pytest
import torch

from icefall_attn.training.augment import SpecAugment, SpecAugmentConfig
from icefall_attn.training.random_state import seed_everything


def make(**options):
    options = {"time_warp": 0, "probability": 1.0, "time_width": 20, **options}
    return SpecAugment(SpecAugmentConfig(**options)).train()


def test_padding_is_untouched_and_does_not_count():
    torch.manual_seed(0), random.seed(0)
    augment = make(time_warp=80)
    x = torch.randn(2, 400, 80)
    x[0, 200:] = float("nan")
    out = augment(x, torch.tensor([200, 400]))
    assert torch.isnan(out[0, 200:]).all()
    assert torch.isfinite(out[0, :200]).all() and torch.isfinite(out[1]).all()
    assert not torch.equal(out[0, :200], x[0, :200])
    assert not torch.equal(out[1], x[1])


def test_masks_start_anywhere():
    """Not always at the front, and up to the end of the valid part."""
    torch.manual_seed(0), random.seed(0)
    augment = make(freq_masks=1, freq_width=2, time_masks=1)
    x = torch.randn(1, 200, 80)
    hits = torch.zeros(200)
    for _ in range(400):
        hits += (augment(x, torch.tensor([200])) != x).all(dim=2)[0].float()
    thirds = hits.view(4, 50).sum(dim=1)
    assert thirds.min() > 0.6 * thirds.max()


def test_share_of_masked_frames_is_bounded():
    torch.manual_seed(0), random.seed(0)
    augment = make(
        freq_masks=1, freq_width=2, time_masks=10, time_width=100, time_share=0.15
    )
    x = torch.randn(1, 300, 80)
    for _ in range(50):
        masked = (augment(x, torch.tensor([300])) != x).all(dim=2).sum()
        assert masked <= 0.15 * 300 + 1


def test_off_in_evaluation_and_while_held_back():
    augment = make()
    x = torch.randn(1, 200, 80)
    assert augment.eval()(x, torch.tensor([200])) is x
    augment.train().active = False
    assert augment(x, torch.tensor([200])) is x


@pytest.mark.parametrize("width", [2, 3, 20, 100])
def test_utterances_of_any_length_pass(width):
    augment = make(time_width=width, time_warp=80)
    for frames in range(1, 250):
        x = torch.randn(1, frames, 80)
        assert augment(x, torch.tensor([frames])).shape == x.shape


def test_short_utterances_are_masked_too():
    augment = make()
    x = torch.randn(1, 60, 80)
    assert not all(torch.equal(augment(x, torch.tensor([60])), x) for _ in range(5))


def test_seed_decides():
    augment = make(time_warp=80)
    x = torch.randn(3, 300, 80)
    results = []
    for _ in range(2):
        seed_everything(7)
        results.append(augment(x, torch.tensor([300, 200, 100])))
    assert torch.equal(*results)

"""Noise of unit power, by kind; samples as the delivery says."""

import numpy as np
import pytest

from icefall_attn.synthesis.delivery import NOISES
from icefall_attn.synthesis.rendering import make_noise


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

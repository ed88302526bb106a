"""Feed-forward modules."""

import pytest
import torch
import torch.nn.functional as F

from icefall_attn.nn.feed_forward import FeedForward, GatedFeedForward


@pytest.mark.parametrize("hidden", [1024, 2048])
def test_the_gated_one_has_about_as_many_weights(hidden):
    dim = 256
    weights = lambda module: sum(p.numel() for p in module.parameters() if p.dim() > 1)
    difference = weights(GatedFeedForward(dim, hidden, 0.0)) - weights(
        FeedForward(dim, hidden, 0.0)
    )
    assert abs(difference) <= 3 * dim


def test_formulas():
    x = torch.randn(2, 3, 6)
    plain, gated = FeedForward(6, 12, 0.0), GatedFeedForward(6, 12, 0.0)
    assert gated.inner.out_features == 8
    torch.testing.assert_close(plain(x), plain.outer(F.silu(plain.inner(x))))
    torch.testing.assert_close(
        gated(x), gated.outer(F.silu(gated.gate(x)) * gated.inner(x))
    )

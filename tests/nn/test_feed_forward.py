"""Feed-forward modules."""

import pytest
import torch
import torch.nn.functional as F

from icefall_attn.encoder.conformer import Conformer, ConformerConfig
from icefall_attn.nn.feed_forward import FEED_FORWARDS, FeedForward, GatedFeedForward


@pytest.mark.parametrize("hidden, width", [(1024, 683), (2048, 1365), (576, 384)])
def test_the_gated_one_has_about_as_many_weights(hidden, width):
    dim = 256
    weights = lambda module: sum(p.numel() for p in module.parameters() if p.dim() > 1)
    gated = GatedFeedForward(dim, hidden, 0.0)
    assert gated.inner.out_features == width
    difference = weights(gated) - weights(FeedForward(dim, hidden, 0.0))
    assert abs(difference) <= dim


FORMULAS = {
    "ffn": lambda m, x, keep: m.outer(keep * F.silu(m.inner(x))),
    "glu": lambda m, x, keep: m.outer(keep * F.silu(m.gate(x)) * m.inner(x)),
    "glu_sigmoid": lambda m, x, keep: m.outer(keep * m.gate(x).sigmoid() * m.inner(x)),
}


@pytest.mark.parametrize("name", FEED_FORWARDS)
def test_formulas(name):
    x, module = torch.randn(2, 3, 6), FEED_FORWARDS[name](6, 12, 0.0)
    torch.testing.assert_close(module(x), FORMULAS[name](module, x, 1.0))


@pytest.mark.parametrize("name", FEED_FORWARDS)
def test_both_dropouts(name):
    """Of hidden values and of results, seen by what each leaves of the formula."""
    x, module = torch.randn(1, 1, 6), FEED_FORWARDS[name](6, 12, 0.5)
    module.hidden_dropout.forward = lambda hidden: hidden * mask
    mask = (torch.arange(module.outer.in_features) % 2).float()
    module.dropout.forward = lambda out: 3 * out
    torch.testing.assert_close(module(x), 3 * FORMULAS[name](module, x, mask))


@pytest.mark.parametrize("name", FEED_FORWARDS)
def test_an_encoder_has_what_was_chosen(name):
    config = ConformerConfig(
        dim=8, heads=2, num_layers=1, subsampling_channels=4, feed_forward=name
    )
    block = Conformer(config).blocks[0]
    for module in (block.feed_forward_in, block.feed_forward_out):
        assert type(module) is FEED_FORWARDS[name]

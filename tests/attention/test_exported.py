"""Scripted and traced attention takes the decisions that depend on lengths anew for every batch."""

import pytest
import torch
from encoder.small import make_encoder

from icefall_attn.attention import MECHANISMS, AttentionConfig
from icefall_attn.attention.contexts import ContextConfig


def make(kind, **options):
    attention = AttentionConfig(kind=kind)
    setattr(attention, kind, MECHANISMS[kind].Config(**options))
    return make_encoder(kind, ContextConfig("full"), layers=1, attention=attention)


def frames(*lengths, padded):
    """Features of utterances that have so many frames after subsampling."""
    x = torch.randn(len(lengths), 4 * padded + 3, 8, dtype=torch.float64)
    return x, 4 * torch.tensor(lengths) + 3


def exported(module, how):
    if how == "script":
        return torch.jit.script(module)
    return torch.jit.trace(module, frames(9, 4, padded=9))


ways = pytest.mark.parametrize("how", ["script", "trace"])
pytestmark = pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")


@ways
@pytest.mark.parametrize(
    "kind, options",
    [("lmla", {"max_length": 10}), ("cosformer", {"period": 10}), ("m_ape", {"period": 10})],
)  # fmt: skip
def test_positions_that_do_not_reach_are_refused(kind, options, how):
    module = make(kind, **options)
    same = exported(module, how)
    for x, lengths in (frames(10, 3, padded=10), frames(10, 3, padded=14)):
        torch.testing.assert_close(same(x, lengths), module(x, lengths))
    with pytest.raises(Exception, match="11 frames is longer than 10"):
        same(*frames(3, 11, padded=11))


@ways
@pytest.mark.parametrize("beyond", ["clamp", "interpolate"])
def test_long_utterances_have_the_same_positions(beyond, how):
    module = make("lmla", max_length=10, beyond=beyond)
    x, lengths = frames(15, 3, padded=17)
    torch.testing.assert_close(exported(module, how)(x, lengths), module(x, lengths))


@ways
@pytest.mark.parametrize("head_mode", ["per_head", "shared"])
@pytest.mark.parametrize("selection", ["measure", "random"])
def test_short_utterances_attend_with_all_queries(selection, head_mode, how):
    """Traced with utterances below `min_len`, and run with others."""
    module = make("prob_sparse", min_len=10, selection=selection, head_mode=head_mode)
    same = exported(module, how)
    for x, lengths in (frames(5, 2, padded=6), frames(30, 9, padded=31)):
        torch.testing.assert_close(same(x, lengths), module(x, lengths))


@ways
@pytest.mark.parametrize("product", ["auto", "left", "right"])
@pytest.mark.parametrize("normalizer", ["reweighted", "kernel"])
def test_both_products(normalizer, product, how):
    """On both sides of the length at which ``auto`` turns."""
    module = make("cosformer", product=product, normalizer=normalizer)
    same = exported(module, how)
    for x, lengths in (frames(3, 2, padded=4), frames(30, 9, padded=31)):
        torch.testing.assert_close(same(x, lengths), module(x, lengths))

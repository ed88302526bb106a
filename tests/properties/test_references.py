"""Every mechanism, with each of its options, against naive loops in float64: values and gradients."""

import dataclasses

import pytest
import torch
from properties.references import REFERENCES, VARIANTS

from icefall_attn.attention import (
    MECHANISMS,
    AttentionConfig,
    AttentionContext,
    make_attention,
    make_shared,
)
from icefall_attn.attention.masking import visible_bias
from icefall_attn.nn.lengths import valid_mask

DIM, HEADS = 8, 2
CASES = [
    (kind, options) for kind in MECHANISMS for options in [{}, *VARIANTS.get(kind, [])]
]


def show(value):
    if isinstance(value, str):
        return value
    return ",".join(f"{name}={option}" for name, option in value.items()) or "default"


@pytest.mark.parametrize("kind, options", CASES, ids=show)
def test_equals_the_naive_loops(kind, options):
    assert kind in REFERENCES, f"tests/properties/references.py lacks {kind}"
    attention = AttentionConfig(kind=kind)
    own = getattr(attention, kind, None)
    for name, option in options.items():
        assert hasattr(own, name)
        setattr(own, name, option)
    torch.manual_seed(0)
    module = make_attention(attention, DIM, HEADS, 0.0, 0).double().eval()
    lengths = [9, 1, 4]
    x = torch.randn(3, 9, DIM, dtype=torch.float64)
    valid = valid_mask(torch.tensor(lengths), 9)
    shared = make_shared(attention, DIM)(9)
    context = AttentionContext(valid, visible_bias(valid, torch.float64), shared)
    parameters = [p for p in module.parameters() if p.requires_grad]
    out = module(x, context)
    fast, slow = [], []
    for row, length in enumerate(lengths):
        weight = torch.randn(length, DIM, dtype=torch.float64)
        fast.append((out[row, :length] * weight).sum())
        expected = REFERENCES[kind](module, x[row, :length], own)
        torch.testing.assert_close(out[row, :length], expected, rtol=1e-6, atol=1e-6)
        slow.append((expected * weight).sum())
    fast = torch.autograd.grad(sum(fast), parameters, allow_unused=True)
    slow = torch.autograd.grad(sum(slow), parameters, allow_unused=True)
    for one, other in zip(fast, slow):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "kind", [k for k in MECHANISMS if hasattr(MECHANISMS[k], "Config")]
)
def test_every_option_is_compared(kind):
    """A new option wants a variant here, or a test of its own elsewhere."""
    elsewhere = {"n_share", "selection"}  # tests/attention/test_prob_sparse.py
    options = {option.name for option in dataclasses.fields(MECHANISMS[kind].Config)}
    compared = {name for variant in VARIANTS[kind] for name in variant}
    assert compared == options - elsewhere

"""Multiply-adds of a computation."""

import pytest
import torch
from torch import nn

from icefall_attn.attention import AttentionConfig, AttentionContext, make_attention
from icefall_attn.cost import multiply_adds


def test_products_and_convolutions_are_counted():
    x = torch.randn(2, 3, 5)
    assert multiply_adds(lambda: x @ x.transpose(1, 2)) == 2 * 3 * 5 * 3
    assert multiply_adds(lambda: nn.Linear(5, 7)(x)) == 2 * 3 * 5 * 7
    convolution = nn.Conv2d(1, 4, kernel_size=3, bias=False)
    count = multiply_adds(lambda: convolution(torch.randn(1, 1, 6, 8)))
    assert count == 4 * 9 * 4 * 6


@pytest.mark.parametrize("training", [True, False])
def test_attention_counts_when_it_is_fused(training):
    """Four projections, scores and their use, with dropout and without, when torch may fuse them."""
    batch, frames, dim = 2, 10, 8
    module = make_attention(AttentionConfig(kind="full"), dim, 2, 0.1, 0)
    module.train(training)
    x = torch.randn(batch, frames, dim)
    valid = torch.ones(batch, frames, dtype=torch.bool)
    count = multiply_adds(lambda: module(x, AttentionContext(valid, None, ())))
    assert count == batch * (4 * frames * dim**2 + 2 * frames**2 * dim)

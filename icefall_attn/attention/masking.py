"""Soft-max over visible keys."""

import torch
from torch import Tensor

from icefall_attn.attention.registry import AttentionContext


def key_bias(valid: Tensor, dtype: torch.dtype) -> Tensor:
    """``(B, T)`` bool to ``(B, 1, 1, T)``: 0 where valid, a large negative number elsewhere.

    Finite, so that the rows of an utterance without any frame stay finite too, and far enough from
    the type's smallest number for scores to be added.
    """
    hidden = -3e4 if dtype == torch.float16 else -1e30
    bias = torch.zeros(valid.shape, dtype=dtype, device=valid.device)
    return bias.masked_fill(~valid, hidden)[:, None, None, :]


def attention_weights(scores: Tensor, context: AttentionContext) -> Tensor:
    """``softmax(scores + bias)`` over visible keys.

    Args:
      scores: ``(B, H, T, T)``; overwritten.
      context: its ``bias`` says which keys are visible.
    """
    bias = context.bias
    if bias is not None:
        scores = scores.add_(bias)
    return torch.softmax(scores, dim=-1)


def merge_heads(x: Tensor) -> Tensor:
    """``(B, H, T, D / H)`` to ``(B, T, D)``."""
    return x.transpose(1, 2).flatten(2)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """``(B, T, D)`` to ``(B, H, T, D / H)``."""
    return x.unflatten(-1, (heads, x.size(-1) // heads)).transpose(1, 2)

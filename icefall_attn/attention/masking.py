"""Soft-max over visible keys."""

from typing import Optional

import torch
from torch import Tensor

from icefall_attn.attention.registry import AttentionContext


def key_bias(valid: Tensor, dtype: torch.dtype) -> Optional[Tensor]:
    """``(B, T)`` bool to ``(B, 1, 1, T)``: 0 where valid, a large negative number elsewhere.

    Finite, so that the rows of an utterance without any frame stay finite too; half of the
    smallest number, so that adding scores to it does not overflow.
    """
    bias = torch.zeros(valid.shape, dtype=dtype, device=valid.device)
    bias = bias.masked_fill(~valid, torch.finfo(dtype).min / 2)
    return bias[:, None, None, :]


def attend(scores: Tensor, value: Tensor, context: AttentionContext, dropout) -> Tensor:
    """``dropout(softmax(scores + bias)) value``.

    Args:
      scores: ``(B, H, T, T)``; overwritten.
      value: ``(B, H, T, D / H)``.
      context: its ``bias`` says which keys are visible.
      dropout: a `Dropout` for the weights.

    Returns:
      ``(B, T, D)``.
    """
    if context.bias is not None:
        scores = scores.add_(context.bias)
    weights = dropout(torch.softmax(scores, dim=-1))
    out = torch.matmul(weights, value)
    return out.transpose(1, 2).flatten(2)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """``(B, T, D)`` to ``(B, H, T, D / H)``."""
    return x.unflatten(-1, (heads, x.size(-1) // heads)).transpose(1, 2)

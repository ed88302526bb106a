"""Weighted sums over keys, of all or of those so far."""

from typing import List, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor


def pair_weights(
    query: Tensor, key: Tensor, factors: List[Tuple[Optional[Tensor], Tensor]]
) -> Tensor:
    """The weights ``w_ij`` of all pairs, ``(B, H, T', T')``: the left product's first half.

    Args:
      query, key: ``(B, H, T', d)`` kernels.
      factors: see `LinearAttention.multipliers`; those of the keys are 0 in padding.
    """
    total = query
    for pair, (of_query, of_key) in enumerate(factors):
        q = query if of_query is None else query * of_query
        weights = torch.matmul(q, (key * of_key).transpose(2, 3))
        total = weights if pair == 0 else total + weights
    return total


def sum_keys_first(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    factors: List[Tuple[Optional[Tensor], Tensor]],
) -> Tuple[Tensor, Tensor]:
    """The right product: ``sum_j w_ij v_j``, ``(B, H, T', d)``, and ``sum_j w_ij``, ``(B, H, T', 1)``.

    Args:
      query, key, factors: as in `pair_weights`.
      value: ``(B, H, T', d)``.
    """
    total, weight = query, query
    for pair, (of_query, of_key) in enumerate(factors):
        q = query if of_query is None else query * of_query
        k = key * of_key
        out = torch.matmul(q, torch.matmul(k.transpose(2, 3), value))
        own = torch.matmul(q, k.sum(dim=2).unsqueeze(3))
        total = out if pair == 0 else total + out
        weight = own if pair == 0 else weight + own
    return total, weight


def sum_causally(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    factors: List[Tuple[Optional[Tensor], Tensor]],
    piece: int,
) -> Tuple[Tensor, Tensor]:
    """Like `sum_keys_first`, each query seeing the keys up to its own frame.

    Args:
      query, key, value, factors: as there.
      piece: frames within which sums go by pairs.
    """
    value = torch.cat((value, torch.ones_like(value[..., :1])), dim=3)
    total = value
    for pair, (of_query, of_key) in enumerate(factors):
        q = query if of_query is None else query * of_query
        out = running_sums(q, key * of_key, value, piece)
        total = out if pair == 0 else total + out
    return total[..., :-1], total[..., -1:]


def running_sums(query: Tensor, key: Tensor, value: Tensor, piece: int) -> Tensor:
    """``q_i sum_{j <= i} k_j v_j^T``, in memory that is linear in the length.

    Args:
      query, key: ``(B, H, T, d)``.
      value: ``(B, H, T, e)``.
      piece: frames that are summed by pairs.

    Returns:
      ``(B, H, T, e)``.
    """
    frames = query.size(2)
    missing = (piece - frames % piece) % piece
    # (B, H, pieces, piece, d or e)
    query, key, value = [
        F.pad(x, (0, 0, 0, missing)).unflatten(2, (-1, piece))
        for x in (query, key, value)
    ]
    sums = torch.matmul(key.transpose(3, 4), value)
    before = F.pad(sums.cumsum(dim=2)[:, :, :-1], (0, 0, 0, 0, 1, 0))
    pairs = torch.matmul(query, key.transpose(3, 4)).tril()
    out = torch.matmul(pairs, value) + torch.matmul(query, before)
    return out.flatten(2, 3)[:, :, :frames]


def divide(total: Tensor, norm: Tensor, eps: float = 1e-6) -> Tensor:
    """``total / norm``; the divisor keeps its sign and is at least ``eps`` away from 0."""
    sign = torch.where(norm < 0, -torch.ones_like(norm), torch.ones_like(norm))
    return total / (sign * norm.abs().clamp(min=eps))

"""Weighted sums over keys, of all or of those so far."""

from typing import List, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor


def attend_linearly(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    factors: List[Tuple[Optional[Tensor], Tensor]],
    left: bool,
    norm: Optional[Tensor],
) -> Tensor:
    """``sum_j w_ij v_j / sum_j w_ij`` with ``w_ij`` the sum over factor pairs of products.

    Args:
      query, key: ``(B, H, T', d)`` kernels.
      value: ``(B, H, T', d)``.
      factors: see `LinearAttention.multipliers`; those of the keys are 0 in padding.
      left: sum over keys last.
      norm: ``(B, H, T', 1)``, what to divide by instead of the sum of the weights.
    """
    total, weight = query, query
    for pair, (of_query, of_key) in enumerate(factors):
        q = query if of_query is None else query * of_query
        k = key * of_key
        if left:
            weights = torch.matmul(q, k.transpose(2, 3))
            out, own = torch.matmul(weights, value), weights.sum(dim=3, keepdim=True)
        else:
            out = torch.matmul(q, torch.matmul(k.transpose(2, 3), value))
            own = torch.matmul(q, k.sum(dim=2).unsqueeze(3))
        total = out if pair == 0 else total + out
        weight = own if pair == 0 else weight + own
    return divide(total, weight if norm is None else norm)


def attend_causally(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    factors: List[Tuple[Optional[Tensor], Tensor]],
    piece: int,
    before: Tensor,
    norm: Optional[Tensor],
) -> Tuple[Tensor, Tensor]:
    """Like `attend_linearly`, each query seeing the keys up to its own frame.

    Args:
      query, key, value, factors, norm: as there.
      piece: frames within which sums go by pairs.
      before: sums over earlier frames, ``(R, B, H, d, d + 1)``.

    Returns:
      ``(B, H, T', d)``, and the sums with these frames.
    """
    value = torch.cat((value, torch.ones_like(value[..., :1])), dim=3)
    total = value
    after: List[Tensor] = []
    for pair, (of_query, of_key) in enumerate(factors):
        q = query if of_query is None else query * of_query
        out, last = running_sums(q, key * of_key, value, piece, before[pair])
        total = out if pair == 0 else total + out
        after.append(last)
    divisor = total[..., -1:] if norm is None else norm
    return divide(total[..., :-1], divisor), torch.stack(after)


def running_sums(
    query: Tensor, key: Tensor, value: Tensor, piece: int, before: Tensor
) -> Tuple[Tensor, Tensor]:
    """``q_i (S + sum_{j <= i} k_j v_j^T)``, in memory that is linear in the length.

    Args:
      query, key: ``(B, H, T, d)``.
      value: ``(B, H, T, e)``.
      piece: frames that are summed by pairs.
      before: S, ``(B, H, d, e)``.

    Returns:
      ``(B, H, T, e)``, and S with all frames.
    """
    frames = query.size(2)
    missing = (piece - frames % piece) % piece
    # (B, H, pieces, piece, d or e)
    query, key, value = [
        F.pad(x, (0, 0, 0, missing)).unflatten(2, (-1, piece))
        for x in (query, key, value)
    ]
    sums = torch.matmul(key.transpose(3, 4), value)
    sums = torch.cat((before.unsqueeze(2), sums), dim=2).cumsum(dim=2)
    pairs = torch.matmul(query, key.transpose(3, 4)).tril()
    out = torch.matmul(pairs, value) + torch.matmul(query, sums[:, :, :-1])
    return out.flatten(2, 3)[:, :, :frames], sums[:, :, -1]


def divide(total: Tensor, norm: Tensor, eps: float = 1e-6) -> Tensor:
    """``total / norm``; the divisor keeps its sign and is at least ``eps`` away from 0."""
    sign = torch.where(norm < 0, -torch.ones_like(norm), torch.ones_like(norm))
    return total / (sign * norm.abs().clamp(min=eps))

"""Weighted sums over keys, of all or of those so far."""

from typing import List, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor


def attend_linearly(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    factors: List[Tuple[Tensor, Tensor]],
    left: bool,
    reweighted: bool,
) -> Tensor:
    """``sum_j w_ij v_j / sum_j w_ij`` with ``w_ij`` the sum over factor pairs of products.

    Args:
      query, key: ``(B, H, T', d)`` kernels, keys 0 in padding.
      value: ``(B, H, T', d)``.
      factors: see `LinearAttention.multipliers`.
      left: sum over keys last.
      reweighted: divide by the sum of the weights, otherwise of the kernels alone.
    """
    total = torch.zeros_like(query)
    norm = torch.zeros_like(query[..., :1])
    for of_query, of_key in factors:
        q, k = query * of_query, key * of_key
        if left:
            weights = torch.matmul(q, k.transpose(2, 3))
            total = total + torch.matmul(weights, value)
            norm = norm + weights.sum(dim=3, keepdim=True)
        else:
            total = total + torch.matmul(q, torch.matmul(k.transpose(2, 3), value))
            norm = norm + torch.matmul(q, k.sum(dim=2).unsqueeze(3))
    if not reweighted:
        norm = torch.matmul(query, key.sum(dim=2).unsqueeze(3))
    return divide(total, norm)


def attend_causally(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    factors: List[Tuple[Tensor, Tensor]],
    reweighted: bool,
    piece: int,
    before: Tuple[Tensor, Tensor],
) -> Tuple[Tensor, Tuple[Tensor, Tensor]]:
    """Like `attend_linearly`, each query seeing the keys up to its own frame.

    Args:
      query, key, value, factors, reweighted: as there.
      piece: frames within which sums go by pairs.
      before: sums over earlier frames, see `LinearState`.

    Returns:
      ``(B, H, T', d)``, and the sums with these frames.
    """
    sums, norms = before
    value = torch.cat((value, torch.ones_like(value[..., :1])), dim=3)
    total = torch.zeros_like(value)
    after: List[Tensor] = []
    for pair, (of_query, of_key) in enumerate(factors):
        out, last = running_sums(
            query * of_query, key * of_key, value, piece, sums[pair]
        )
        total = total + out
        after.append(last)
    norm, norm_after = total[..., -1:], norms + key.sum(dim=2).unsqueeze(3)
    if not reweighted:
        norm = (query * (norms.transpose(2, 3) + key.cumsum(dim=2))).sum(
            3, keepdim=True
        )
    return divide(total[..., :-1], norm), (torch.stack(after), norm_after)


def nothing(like: Tensor, pairs: int) -> Tuple[Tensor, Tensor]:
    """The sums before the first of frames ``(B, H, T', d)``, for a number of factor pairs."""
    batch, heads, _, d = like.shape
    sums = like.new_zeros([pairs, batch, heads, d, d + 1])
    return sums, like.new_zeros([batch, heads, d, 1])


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

"""Which keys a query may see, and the heads' places."""

import torch
from torch import Tensor


def visible_bias(valid: Tensor, dtype: torch.dtype, causal: bool) -> Tensor:
    """What is added to scores: 0 on keys that a query may see, a large negative number elsewhere.

    Finite, so that the rows of an utterance without any frame stay finite too.

    Args:
      valid: ``(B, T)`` bool.
      dtype: of the result.
      causal: hide keys after the query.

    Returns:
      ``(B, 1, 1, T)``, or ``(B, 1, T, T)`` if causal.
    """
    visible = valid[:, None, None, :]
    if causal:
        frames = torch.arange(valid.size(1), device=valid.device)
        visible = visible & (frames <= frames.unsqueeze(1))
    bias = torch.zeros(visible.shape, dtype=dtype, device=valid.device)
    # within float16's range, and e to its power is 0 in every type
    return bias.masked_fill(~visible, -3e4)


def merge_heads(x: Tensor) -> Tensor:
    """``(B, H, T, D / H)`` to ``(B, T, D)``."""
    return x.transpose(1, 2).flatten(2)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """``(B, T, D)`` to ``(B, H, T, D / H)``."""
    return x.unflatten(-1, (heads, x.size(-1) // heads)).transpose(1, 2)

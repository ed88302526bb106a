"""Which keys a query may see, and the heads' places."""

import torch
from torch import Tensor

from icefall_attn.attention.contexts import FULL, Window, sees, unlimited


def visible_bias(valid: Tensor, dtype: torch.dtype, window: Window = FULL) -> Tensor:
    """What is added to scores: 0 on keys that a query may see, a large negative number elsewhere.

    Finite, so that the rows of an utterance without any frame stay finite too.

    Args:
      valid: ``(B, T)`` bool.
      dtype: of the result.
      window: hide keys outside of it.

    Returns:
      ``(B, 1, 1, T)`` if the window is unlimited, otherwise ``(B, 1, T, T)``.
    """
    visible = valid[:, None, None, :]
    if not unlimited(window.ahead):
        frames = torch.arange(valid.size(1), device=valid.device)
        visible = visible & sees(window, frames.unsqueeze(1), frames)
    return hidden_bias(visible, dtype)


def hidden_bias(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where ``visible``, a large negative number elsewhere."""
    bias = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
    # within float16's range, and e to its power is 0 in every type
    return bias.masked_fill(~visible, -3e4)


def merge_heads(x: Tensor) -> Tensor:
    """``(B, H, T, D / H)`` to ``(B, T, D)``."""
    return x.transpose(1, 2).flatten(2)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """``(B, T, D)`` to ``(B, H, T, D / H)``."""
    return x.unflatten(-1, (heads, x.size(-1) // heads)).transpose(1, 2)

"""Lengths and the masks that follow from them: the one place where padding is defined."""

import torch
from torch import Tensor


def subsampled(length):
    """Encoder frames T' of ``length`` input frames: two 3-wide convolutions of stride 2.

    Works for ints and integer tensors; 0 where the input is shorter than the 7 frames that the
    first output needs.
    """
    out = ((length - 1) // 2 - 1) // 2
    if isinstance(out, Tensor):
        return out.clamp(min=0)
    return max(out, 0)


def valid_mask(lengths: Tensor, max_length: int) -> Tensor:
    """``(B,)`` lengths to a ``(B, max_length)`` mask, True on valid frames."""
    return torch.arange(max_length, device=lengths.device) < lengths.unsqueeze(1)

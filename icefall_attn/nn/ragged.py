"""Pieces and buffers of streams that have come to different places.

A piece ``(B, n, ...)`` holds ``lengths`` ``(B,)`` frames of each stream, from the left; what follows them
has no meaning. A buffer is a piece that a state keeps.
"""

import torch
from torch import Tensor


def window(x: Tensor, start: Tensor, width: int) -> Tensor:
    """Frames ``start`` to ``start + width`` of each row.

    Args:
      x: ``(B, N, ...)``.
      start: ``(B,)``; places outside of x give some frame of it, or 0 if it has none.
      width: of the result.

    Returns:
      ``(B, width, ...)``.
    """
    if x.size(1) == 0 or width == 0:
        return x.new_zeros([x.size(0), width] + list(x.shape[2:]))
    places = start.unsqueeze(1) + torch.arange(width, device=x.device)
    return _pick(x, places)


def append(buffer: Tensor, count: Tensor, piece: Tensor) -> Tensor:
    """Each row of ``piece`` after the first ``count`` frames of its row in ``buffer``.

    Args:
      buffer: ``(B, N, ...)``.
      count: ``(B,)``.
      piece: ``(B, n, ...)``.

    Returns:
      ``(B, N + n, ...)``.
    """
    if buffer.size(1) == 0:
        return piece
    width = buffer.size(1) + piece.size(1)
    places = torch.arange(width, device=piece.device).expand(piece.size(0), -1)
    count = count.unsqueeze(1)
    places = torch.where(places < count, places, places - count + buffer.size(1))
    return _pick(torch.cat((buffer, piece), dim=1), places)


def longest(lengths: Tensor) -> int:
    """The largest of ``(B,)`` lengths, 0 of none."""
    return int(lengths.max()) if lengths.numel() > 0 else 0


def _pick(x: Tensor, places: Tensor) -> Tensor:
    """Frames ``(B, n)`` of ``(B, N, ...)``, the first and the last for what lies beyond them."""
    places = places.clamp(0, x.size(1) - 1)
    rows = torch.arange(x.size(0), device=x.device).unsqueeze(1) * x.size(1)
    # One index instead of two: several times as fast.
    picked = x.flatten(0, 1).index_select(0, (places + rows).flatten())
    return picked.view(places.shape + x.shape[2:])

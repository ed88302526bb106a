"""Which labels each frame keeps (Kuang et al. 2022, sec. 3.2)."""

import torch
from torch import Tensor


def covering_range(
    prune_range: int, label_lengths: Tensor, lengths: Tensor, regular: bool
) -> int:
    """``prune_range``, raised where no path could pass: each frame's window may move on by at most
    R - 1 labels, so that ``(R - 1) T' >= U`` must hold."""
    if not regular or label_lengths.numel() == 0:
        return max(prune_range, 2)
    needed = -(-label_lengths // lengths.clamp(min=1)) + 1
    return max(prune_range, 2, int(needed.max()))


def prune_ranges(
    px_grad: Tensor, py_grad: Tensor, label_lengths: Tensor, lengths: Tensor, width: int
) -> Tensor:
    """The window of R label positions per frame in which most of the probability lies.

    A window that begins at u is worth the occupation of its blanks, less that of the label
    arc that enters it at u from outside. The best beginnings are then made to rise by less
    than R (by at most 1 where labels take time) and to end at the last label.

    Args:
      px_grad: ``(B, U, T' + 1)`` or ``(B, U, T')`` occupation of label arcs.
      py_grad: ``(B, U + 1, T')`` occupation of blank arcs.
      label_lengths: ``(B,)``.
      lengths: ``(B,)``.
      width: R.

    Returns:
      ``(B, T', min(R, U + 1))`` int64, consecutive positions.
    """
    positions, frames = py_grad.shape[1:]
    regular = px_grad.size(2) == frames + 1
    width = min(width, positions)
    sums = torch.nn.functional.pad(py_grad.cumsum(1), (0, 0, 1, 0))
    worth = sums[:, width:] - sums[:, : positions + 1 - width]
    entering = torch.nn.functional.pad(px_grad[:, :, :frames], (0, 0, 1, 0))
    begin = (worth - entering[:, : worth.size(1)]).argmax(dim=1)  # (B, T')
    frame = torch.arange(frames, device=begin.device)
    last = (label_lengths[:, None] - width + 1).clamp(min=0)
    begin = torch.where(frame < lengths[:, None] - 1, begin, last)
    step = width - 1 if regular else 1
    begin = _rising(begin)
    slack = _rising(step * frame - begin).clamp(
        min=0
    )  # rises by at most `step`, from 0
    begin = step * frame - slack
    return begin.unsqueeze(2) + torch.arange(width, device=begin.device)


def _rising(x: Tensor) -> Tensor:
    """The largest non-decreasing sequence below x: the minimum over all later places."""
    return x.flip(1).cummin(1).values.flip(1)

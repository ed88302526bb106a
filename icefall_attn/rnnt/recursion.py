"""Forward scores of a transducer lattice, in torch.

``alpha[b, s, t]``, ``(B, U + 1, T' + 1)``, is the log-probability of all ways to stand after s labels
before frame t; px and py are as in `lattice`, float64, with `FLOOR` for -inf.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

# Stands for -inf where infinities would give NaN in differences. Sums of it over the frames of an
# utterance keep 6 digits after the point in float64, and no real loss comes near it.
FLOOR = -1e6


def by_steps(px: Tensor, py: Tensor, time_free: bool) -> Tensor:
    """Step by step, an arc being a step: T' + U steps if labels take no time, otherwise T'.

    States of equal steps are computed at once, each step a few small operations: what a CPU likes.
    """
    batch, rows, frames = py.shape
    labels = rows - 1
    if time_free:  # by the number of arcs, s + t
        px, py = _skew(px, labels), _skew(pad(py, (0, 1), value=FLOOR), labels)
    # utterances last, so that a move from s to s + 1 is one between contiguous rows
    px, py = px.permute(2, 1, 0).contiguous(), py.permute(2, 1, 0).contiguous()
    alpha = py.new_full((py.size(0) + (0 if time_free else 1), rows, batch), FLOOR)
    alpha[0, 0] = 0.0
    _walk(alpha, px, py)
    if not time_free:
        return alpha.permute(2, 1, 0)
    step = rows * batch
    return alpha.as_strided((batch, rows, frames + 1), (1, step + batch, step))


@torch.jit.script
def _walk(alpha: Tensor, px: Tensor, py: Tensor) -> None:
    for n in range(1, alpha.size(0)):
        before, now = alpha[n - 1], alpha[n]
        torch.add(before, py[n - 1], out=now)
        entered = now[1:]
        torch.logaddexp(entered, before[:-1] + px[n - 1], out=entered)


def _skew(x: Tensor, more: int) -> Tensor:
    """``(B, M, N)`` to ``y[b, s, n] = x[b, s, n - s]``, ``(B, M, N + more)``; `FLOOR` outside."""
    batch, height, width = x.shape
    x = pad(x, (0, more + 1), value=FLOOR).contiguous()
    row = width + more + 1
    size, strides = (batch, height, width + more), (height * row, row - 1, 1)
    return x.as_strided(size, strides)


def by_labels(px: Tensor, py: Tensor, time_free: bool) -> Tensor:
    """Label by label, a few operations on ``(B, T' + 1)`` for each: U steps, few kernels for a GPU.

    Along a row of t, ``alpha[t] = logadd(enter[t], alpha[t - 1] + py[t - 1])``, whose solution is a
    cumulative sum: ``alpha[t] = c[t] + log sum_{k <= t} exp(enter[k] - c[k])``, c the sum of py
    before t.
    """
    batch, rows, frames = py.shape
    alpha = py.new_zeros(rows, batch, frames + 1)
    torch.cumsum(py.transpose(0, 1), 2, out=alpha[:, :, 1:])
    never = 10 * (frames + 1) * FLOOR
    for s in range(1, rows):
        before, c, label = alpha[s - 1], alpha[s], px[:, s - 1]
        if time_free:
            enter = before + label
        else:
            enter = pad(before[:, :-1] + label, (1, 0), value=never)
        c.add_(torch.logcumsumexp(enter.sub_(c), dim=1))
    return alpha.transpose(0, 1)

"""How probable the arcs of a transducer lattice are, in torch: the forward-backward recursion.

Two orders of the same sums. px and py are as in `lattice`, with `FLOOR` for -inf and outside of the
utterances. Both return, in float64, the total score ``(B,)`` and the logarithms of the occupations,
shaped like px and py.

Backward scores are forward scores of the lattice turned round, ``s -> U - s, t -> T' - t``, so that one
pass does for both. Turned round, a short utterance begins late: it waits at its first state, at no cost.
"""

from typing import List, Tuple

import torch
from torch import Tensor

# Stands for -inf where infinities would give NaN in differences. Sums of it over the frames of an
# utterance keep 6 digits after the point in float64, and no real loss comes near it.
FLOOR = -1e6


def by_steps(
    px: Tensor, py: Tensor, label_lengths: Tensor, lengths: Tensor
) -> Tuple[Tensor, Tensor, Tensor]:
    """Step by step, an arc being a step: T' + U steps if labels take no time, otherwise T'.

    States of equal steps are computed at once, each step two small operations: what a CPU likes.
    """
    batch, rows, frames = py.shape
    time_free = px.size(2) > frames
    steps = frames + rows - 1 if time_free else frames
    ends = lengths + label_lengths if time_free else lengths
    # [step, label or blank, state that it leads to, utterance: forward, then backward]
    arcs = py.new_full((steps, 2, rows, 2 * batch), FLOOR, dtype=torch.float64)
    forward, backward = arcs.chunk(2, dim=3)
    label, blank = forward[:, 0, 1:], forward[:, 1]
    _in_time(label, px.size(2), time_free).copy_(px)
    _in_time(blank, frames, time_free).copy_(py)
    backward[:, 0, 1:] = label.flip(0, 1)
    backward[:, 1] = blank.flip(0, 1)
    first = rows - 1 - label_lengths
    step, late = (torch.arange(steps)[:, None] < steps - ends).nonzero(as_tuple=True)
    backward[step, 1, first[late], late] = 0.0

    # [step, 0: nowhere, then s, utterance]
    scores = arcs.new_full((steps + 1, rows + 1, 2 * batch), FLOOR)
    utterance = torch.arange(batch)
    scores[0, 1, :batch] = 0.0
    scores[0, 1 + first, batch + utterance] = 0.0
    _walk(scores, arcs)
    alpha, beta = scores[:, 1:].chunk(2, dim=2)
    beta = beta.flip(0, 1)
    total = alpha[ends, label_lengths, utterance]
    alpha.sub_(total)
    label.add_(alpha[:-1, :-1]).add_(beta[1:, 1:])
    blank.add_(alpha[:-1]).add_(beta[1:])
    return (
        total,
        _in_time(label, px.size(2), time_free),
        _in_time(blank, frames, time_free),
    )


def _walk(scores: Tensor, arcs: Tensor) -> None:
    """``scores[n + 1, s] = logadd(scores[n, s - 1] + label, scores[n, s] + blank)`` for all n."""
    steps, _, rows, width = arcs.shape
    strides = (scores.stride(0), width, width, 1)
    before = scores.as_strided((steps, 2, rows, width), strides)
    _each_step(before.unbind(0), arcs.unbind(0), scores[1:, 1:].unbind(0))


@torch.jit.script
def _each_step(before: List[Tensor], arcs: List[Tensor], after: List[Tensor]) -> None:
    both = torch.empty_like(arcs[0])
    entered, stayed = both.unbind(0)
    for n in range(len(arcs)):
        torch.add(before[n], arcs[n], out=both)
        torch.logaddexp(entered, stayed, out=after[n])


def _in_time(x: Tensor, width: int, time_free: bool) -> Tensor:
    """``(steps, rows, B)`` seen as ``y[b, s, t]`` of so many t: step s + t if labels take no time, else t."""
    step, row, utterance = x.stride()
    return x.as_strided(
        (x.size(2), x.size(1), width),
        (utterance, row + step if time_free else row, step),
    )


def by_labels(
    px: Tensor, py: Tensor, label_lengths: Tensor, lengths: Tensor
) -> Tuple[Tensor, Tensor, Tensor]:
    """Label by label, three operations on ``(2 B, T' + 1)`` for each, none of which waits for the host.

    For a GPU: 3 U kernels in a row and a few more, fewer than one for each of T' + U diagonals as
    long as there are twice as many frames as labels.
    """
    batch, rows, frames = py.shape
    time_free = px.size(2) > frames
    px, py = px.double(), py.double()
    s, t = (torch.arange(n, device=py.device) for n in (rows, frames))
    last = s[:, None] == label_lengths[:, None, None]
    waiting = py.masked_fill(last & (t >= lengths[:, None, None]), 0.0)
    first = torch.cat((torch.zeros_like(lengths), rows - 1 - label_lengths))
    alpha, beta = _rows(
        torch.cat((px, px.flip(1, 2))),
        torch.cat((py, waiting.flip(1, 2))),
        first,
        time_free,
    ).chunk(2)
    beta = beta.flip(1, 2)
    utterance = torch.arange(batch, device=py.device)
    total = alpha[utterance, label_lengths, lengths]
    beta.sub_(total[:, None, None])
    entered = beta[:, 1:] if time_free else beta[:, 1:, 1:]
    left = alpha[:, :-1, : px.size(2)]
    return total, px + left + entered, py + alpha[:, :, :-1] + beta[:, :, 1:]


def _rows(px: Tensor, py: Tensor, first: Tensor, time_free: bool) -> Tensor:
    """Forward scores ``alpha[b, s, t]`` from row ``first[b]``, t = 0.

    Along a row of t, ``alpha[t] = logadd(enter[t], alpha[t - 1] + py[t - 1])``, whose solution is a
    cumulative sum: ``alpha[t] = c[t] + log sum_{k <= t} exp(enter[k] - c[k])``, c the sum of py
    before t.
    """
    batch, rows, frames = py.shape
    alpha = py.new_zeros(rows, batch, frames + 1)
    torch.cumsum(py.transpose(0, 1), 2, out=alpha[:, :, 1:])
    enter, px = alpha.neg(), px.transpose(0, 1)  # -c, with what enters added to it
    s = torch.arange(rows, device=py.device)[:, None]
    if time_free:
        sources, places = alpha, enter
        places[1:] += px
        places[1:, :, 0].masked_fill_(s[1:] <= first, 0.0)  # up to its row for nothing
    else:
        sources, places = alpha[:, :, :-1], enter[:, :, 1:]
        places[1:] += px
        enter[:, :, 0] = torch.where(s == first, 0.0, FLOOR)
        alpha[0] += enter[0, :, :1]
    for source, place, row, c in zip(sources, places[1:], enter[1:], alpha[1:]):
        place.add_(source)
        c.add_(torch.logcumsumexp(row, dim=1))
    return alpha.transpose(0, 1)

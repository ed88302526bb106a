"""Two orders of one recursion."""

import itertools
import math

import pytest
import torch
from torch.nn.functional import pad
from torch.utils._python_dispatch import TorchDispatchMode

from icefall_attn.rnnt.recursion import FLOOR, by_labels, by_steps


def lattice(batch, labels, frames, time_free, scale=1.0):
    px = scale * torch.randn(batch, labels, frames, dtype=torch.float64)
    py = scale * torch.randn(batch, labels + 1, frames, dtype=torch.float64)
    return pad(px, (0, int(time_free)), value=FLOOR), py


def fenced(px, py, label_lengths, lengths):
    """As `by_steps` wants them: no way leads out of an utterance."""
    for index, (count, frames) in enumerate(zip(label_lengths, lengths)):
        px[index, count:], px[index, :, frames:] = FLOOR, FLOOR
        py[index, count + 1 :], py[index, :, frames:] = FLOOR, FLOOR
    return px, py


def one_by_one(px, py, labels, frames, time_free):
    """Total and occupations of one utterance, from a list of all its alignments."""
    scores, arcs = [], []
    steps = frames + labels if time_free else frames
    for chosen in itertools.combinations(range(steps), labels):
        s = t = 0
        score, used = 0.0, []
        for n in range(steps):
            is_label = n in chosen
            if (t == frames and not (is_label and time_free)) or (
                is_label and s == labels
            ):
                score = FLOOR
                break
            score += float((px if is_label else py)[s, t])
            used.append((is_label, s, t))
            s, t = s + is_label, t + (not (is_label and time_free))
        if score > FLOOR / 2:
            scores.append(score)
            arcs.append(used)
    occupied = torch.zeros_like(px), torch.zeros_like(py)
    if not scores:
        return -math.inf, *occupied
    total = torch.tensor(scores, dtype=torch.float64).logsumexp(0)
    for score, used in zip(scores, arcs):
        for is_label, s, t in used:
            occupied[not is_label][s, t] += math.exp(score - total)
    return total, *occupied


@pytest.mark.parametrize("recursion", [by_steps, by_labels])
@pytest.mark.parametrize("time_free", [True, False])
def test_sums_over_all_alignments(recursion, time_free):
    """Utterances of every size beside each other; some have more labels than their frames can take."""
    sizes = list(itertools.product(range(4), range(1, 5)))
    label_lengths, lengths = (torch.tensor(column) for column in zip(*sizes))
    px, py = lattice(len(sizes), 3, 4, time_free)
    px, py = fenced(px, py, label_lengths, lengths)
    total, label, blank = recursion(px, py, label_lengths, lengths)
    assert label.shape == px.shape and blank.shape == py.shape
    for index, (count, frames) in enumerate(sizes):
        expected = one_by_one(px[index], py[index], count, frames, time_free)
        if expected[0] == -math.inf:
            assert not time_free and count > frames and total[index] < FLOOR / 2
            continue
        torch.testing.assert_close(total[index], expected[0])
        torch.testing.assert_close(label[index].exp(), expected[1])
        torch.testing.assert_close(blank[index].exp(), expected[2])


@pytest.mark.parametrize("labels", [0, 1, 7, 30])
@pytest.mark.parametrize("time_free", [True, False])
def test_both_orders_agree(labels, time_free):
    """On longer lattices, a label and a frame of which are forbidden."""
    px, py = lattice(4, labels, 40, time_free, scale=5)
    px[1, :, 4], py[2, : labels // 2, 7] = FLOOR, FLOOR
    sizes = torch.tensor([labels, labels, labels, labels // 2]), torch.tensor(
        [40, 40, 40, 35]
    )
    px, py = fenced(px, py, *sizes)
    (one, *ones), (other, *others) = (
        recursion(px, py, *sizes) for recursion in (by_steps, by_labels)
    )
    alive = other > FLOOR / 2
    assert torch.equal(alive, one > FLOOR / 2) and alive.sum() >= 3
    torch.testing.assert_close(one[alive], other[alive])
    for x, y in zip(ones, others):
        torch.testing.assert_close(x[alive].exp(), y[alive].exp())


@pytest.mark.parametrize("time_free", [True, False])
def test_label_by_label_takes_few_operations(time_free):
    """On a GPU each is a kernel: fewer than one for every diagonal of the lattice."""
    labels, frames = 100, 250
    px, py = lattice(2, labels, frames, time_free)
    sizes = torch.tensor([labels] * 2), torch.tensor([frames] * 2)
    views = ("select", "slice", "transpose", "unbind", "view", "as_strided", "alias")

    class Count(TorchDispatchMode):
        kernels = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            self.kernels += not any(view in str(function) for view in views)
            return function(*args, **(kwargs or {}))

    with Count() as count:
        by_labels(px, py, *sizes)
    assert 2 * labels < count.kernels < frames + labels

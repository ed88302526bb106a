"""Two orders of one recursion."""

import itertools
import math

import pytest
import torch

from icefall_attn.rnnt.recursion import FLOOR, by_labels, by_steps


def paths(px, py, labels, frames, time_free):
    """The log-probabilities of all ways to stand after ``labels`` before ``frames``, one by one."""
    scores = []
    moves = "ly"  # a label, a blank
    for length in range(labels + frames + 1):
        for path in itertools.product(moves, repeat=length):
            s = t = 0
            score = 0.0
            for move in path:
                arcs = px if move == "l" else py
                if s >= arcs.size(0) or t >= arcs.size(1):
                    score = FLOOR
                    break
                score += float(arcs[s, t])
                t += 1 if move == "y" or not time_free else 0
                s += 1 if move == "l" else 0
            if (s, t) == (labels, frames) and score > FLOOR / 2:
                scores.append(score)
    return (
        torch.tensor(scores, dtype=torch.float64).logsumexp(0) if scores else -math.inf
    )


@pytest.mark.parametrize("recursion", [by_steps, by_labels])
@pytest.mark.parametrize("time_free", [True, False])
def test_every_state_is_the_sum_over_its_ways(recursion, time_free):
    px = torch.randn(1, 3, 4 if time_free else 3, dtype=torch.float64)
    if time_free:
        px[:, :, -1] = FLOOR
    py = torch.randn(1, 4, 3, dtype=torch.float64)
    alpha = recursion(px, py, time_free)[0]
    for s, t in itertools.product(range(4), range(4)):
        expected = paths(px[0], py[0], s, t, time_free)
        if expected == -math.inf or expected < FLOOR / 2:
            assert alpha[s, t] < FLOOR / 2
        else:
            torch.testing.assert_close(alpha[s, t], expected)


@pytest.mark.parametrize("labels", [0, 1, 7, 30])
@pytest.mark.parametrize("time_free", [True, False])
def test_both_orders_agree(labels, time_free):
    px = torch.randn(3, labels, 21 if time_free else 20, dtype=torch.float64) * 5
    py = torch.randn(3, labels + 1, 20, dtype=torch.float64) * 5
    px[1, :, 4], py[2, :, 7] = FLOOR, FLOOR
    one, other = by_steps(px, py, time_free), by_labels(px, py, time_free)
    assert one.shape == other.shape == (3, labels + 1, 21)
    alive = other > FLOOR / 2
    assert torch.equal(alive, one > FLOOR / 2) and alive.any()
    torch.testing.assert_close(one[alive], other[alive])

"""A sample of a stream is a fair one."""

from itertools import combinations

import pytest

from icefall_attn.data.sample import RandomSample


def test_few_items_are_all_kept_in_order():
    sample = RandomSample(5)
    for item in "abc":
        sample.add(item)
    assert sample.items == ["a", "b", "c"] and sample.seen == 3


def test_no_item_is_kept_of_a_sample_of_none():
    sample = RandomSample(0)
    for item in range(10):
        sample.add(item)
    assert sample.items == [] and sample.seen == 10


def test_every_choice_is_as_likely():
    """One generator that goes on, 6000 draws of 2 of 4: each pair is due 1000 times."""
    counts = {pair: 0 for pair in combinations(range(4), 2)}
    rng = RandomSample(0)._rng
    for _ in range(6000):
        sample = RandomSample(2)
        sample._rng = rng
        for item in range(4):
            sample.add(item)
        counts[tuple(sorted(sample.items))] += 1
    # Five standard deviations.
    assert all(count == pytest.approx(1000, abs=5 * 29) for count in counts.values())

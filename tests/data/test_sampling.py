"""Plans of epochs: every utterance in one batch, batches bounded, processes in step."""

import numpy as np
import pytest

from icefall_attn.data.sampling import (
    bucket_of,
    in_order,
    in_turns,
    shuffled,
    shuffled_shards,
)

DURATIONS = np.random.default_rng(0).uniform(1.0, 16.0, 3000)
SHARDS = np.repeat(np.arange(20), 150)


def rng(seed=0):
    return np.random.default_rng(seed)


def batches_of(plan):
    return [batch.tolist() for batch in plan.batches()]


def padded(batch):
    return len(batch) * DURATIONS[batch].max()


def shards_plan(world=1, rank=0, streams=4, seed=0):
    how = (200.0, 10, rng(seed), world, rank, streams)
    return shuffled_shards(DURATIONS, SHARDS, *how)


def test_in_order():
    durations = np.array([9.0, 4.0, 3.0, 3.0, 2.0])
    falling = in_order(durations, np.arange(5), 8.0)
    assert batches_of(falling) == [[0], [1, 2], [3, 4]]
    rising = in_order(durations, np.arange(5)[::-1], 8.0)
    assert batches_of(rising) == [[4, 3], [2, 1], [0]]
    assert batches_of(in_order(durations, np.arange(0), 8.0)) == []


def test_buckets_hold_as_much_audio():
    buckets = bucket_of(DURATIONS, 8)
    audio = np.bincount(buckets, weights=DURATIONS)
    assert len(audio) == 8 and audio.max() / audio.min() < 1.05
    by_bucket = [DURATIONS[buckets == b] for b in range(8)]
    assert all(a.max() <= b.min() for a, b in zip(by_bucket, by_bucket[1:]))
    # All the same, and a single one.
    assert (
        len(set(bucket_of(np.ones(10), 5))) == len(set(bucket_of(np.ones(1), 5))) == 1
    )


# A shard has 150 utterances for batches of 20, which cannot be as much alike.
@pytest.mark.parametrize(
    "plan, share",
    [(shuffled(DURATIONS, 200.0, 30, rng()), 0.06), (shards_plan(), 0.15)],
)
def test_each_utterance_once_in_full_batches(plan, share):
    found = batches_of(plan)
    assert sorted(i for batch in found for i in batch) == list(range(3000))
    assert max(map(padded, found)) <= 200.0
    waste = 1 - DURATIONS.sum() / sum(map(padded, found))
    assert waste < share


def test_shuffled_over_everything():
    first, second = (batches_of(shuffled(DURATIONS, 200.0, 10, rng(s))) for s in (0, 1))
    assert first == batches_of(shuffled(DURATIONS, 200.0, 10, rng(0)))
    assert not {frozenset(b) for b in first} & {frozenset(b) for b in second}
    # Neither neighbours in the file nor in duration stay together.
    whole = np.concatenate(first)
    assert abs(np.corrcoef(np.arange(3000), whole)[0, 1]) < 0.1
    longest = [DURATIONS[batch].max() for batch in first]
    assert abs(np.corrcoef(longest[1:], longest[:-1])[0, 1]) < 0.3


@pytest.mark.parametrize("world", [2, 3, 7])
def test_processes_take_turns(world):
    alone = {tuple(b) for b in batches_of(shuffled(DURATIONS, 200.0, 10, rng()))}
    parts = [
        batches_of(shuffled(DURATIONS, 200.0, 10, rng(), world, r))
        for r in range(world)
    ]
    assert len({len(part) for part in parts}) == 1
    turns = list(zip(*parts))
    assert {tuple(b) for turn in turns for b in turn} == alone
    # One turn may have too few batches; in the others all are different and about as long.
    assert sum(len({tuple(b) for b in turn}) < world for turn in turns) <= 1
    spread = [np.ptp([DURATIONS[b].max() for b in turn]) for turn in turns]
    assert np.mean(spread) < 1.5


def test_turns_in_order():
    plan = in_order(np.ones(7), np.arange(7), 1.0)
    parts = [batches_of(in_turns(plan, 3, rank)) for rank in range(3)]
    assert list(zip(*parts)) == [([0], [1], [2]), ([3], [4], [5]), ([6], [6], [6])]


@pytest.mark.parametrize("world", [1, 3, 20])
def test_shards_are_dealt_to_processes(world):
    parts = [batches_of(shards_plan(world, rank)) for rank in range(world)]
    assert len({len(part) for part in parts}) == 1
    for part in parts:
        assert all(len(set(SHARDS[batch])) == 1 for batch in part)
    own = [{int(SHARDS[batch[0]]) for batch in part} for part in parts]
    assert sum(map(len, own)) == len(set.union(*own)) == 20
    assert {i for part in parts for batch in part for i in batch} == set(range(3000))


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_streams_keep_to_their_workers(workers):
    """A worker that loads every n-th batch reads a shard to its end before the stream's next."""
    shards = [int(SHARDS[batch[0]]) for batch in batches_of(shards_plan())]
    shortest = min(shards.count(s) for s in set(shards)) * 4 * 4
    seen = [shards[w:shortest:workers] for w in range(workers)]
    assert sum(len(set(part)) for part in seen) == len(set(shards[:shortest]))
    for part in seen:
        for begin in range(len(part) - 4 // workers):
            assert len(set(part[begin : begin + 4 // workers])) == 4 // workers


def test_shards_in_another_order_each_epoch():
    first, second = (
        [int(SHARDS[batch[0]]) for batch in batches_of(shards_plan(seed=s))]
        for s in (0, 1)
    )
    assert first != second and first == [
        int(SHARDS[batch[0]]) for batch in batches_of(shards_plan(seed=0))
    ]

"""Plans of epochs: every utterance in one batch, batches bounded, processes in step."""

import numpy as np
import pytest

from icefall_attn.data.sampling import (
    Share,
    bucket_of,
    by_rising_duration,
    in_order,
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


def buckets_plan(share=Share()):
    return shuffled(DURATIONS, 200.0, 10, rng(), share)


def rising_plan(share=Share()):
    return by_rising_duration(DURATIONS, 200.0, share)


def shards_plan(share=Share(), streams=4, seed=0):
    return shuffled_shards(DURATIONS, SHARDS, 200.0, 10, rng(seed), share, streams)


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


def taken(plan, size, **more):
    """(turns, size) of what the processes take, each turn's batches side by side."""
    parts = [batches_of(plan(Share(rank, size, **more))) for rank in range(size)]
    assert len({len(part) for part in parts}) == 1
    return list(zip(*parts))


def utterances(turns):
    return sorted(i for turn in turns for batch in turn for i in batch)


EVERYTHING = list(range(3000))


@pytest.mark.parametrize("plan", [buckets_plan, rising_plan, shards_plan])
@pytest.mark.parametrize("size", [2, 3, 7, 20])
def test_processes_share_an_epoch(plan, size):
    """Each utterance is in one batch of one process; a turn that is short has empty ones."""
    turns = taken(plan, size)
    assert utterances(turns) == EVERYTHING
    batches = [b for turn in turns for b in turn if b]
    alone = batches_of(plan())
    assert sorted(batches) == sorted(alone)
    if plan is not shards_plan:
        assert sum([] in turn for turn in turns) <= 1
        longest = [[DURATIONS[b].max() for b in turn if b] for turn in turns]
        assert np.mean([np.ptp(turn) for turn in longest]) < 0.2 * max(size, 7)


@pytest.mark.parametrize("size", [3, 20])
def test_shards_are_dealt_to_processes(size):
    parts = list(zip(*taken(shards_plan, size)))
    own = [{int(SHARDS[batch[0]]) for batch in part if batch} for part in parts]
    assert sum(map(len, own)) == len(set.union(*own)) == 20


@pytest.mark.parametrize("plan", [buckets_plan, rising_plan, shards_plan])
def test_an_epoch_goes_on(plan):
    whole = taken(plan, 3)
    assert taken(plan, 3, turns=5) == whole[5:]
    assert taken(plan, 3, turns=len(whole)) == []


@pytest.mark.parametrize("plan", [buckets_plan, rising_plan, shards_plan])
def test_an_epoch_goes_on_with_more_and_fewer_processes(plan):
    """3 processes took 5 turns, then 2 took 4, then 5 took 1; then 2 take the rest."""
    done, earlier = [], ()
    for size, turns in ((3, 5), (2, 4), (5, 1)):
        done += taken(plan, size, earlier=earlier)[:turns]
        earlier += ((size, turns),)
    rest = taken(plan, 2, earlier=earlier)
    assert utterances(done + rest) == EVERYTHING
    assert taken(plan, 2, earlier=earlier, turns=3) == rest[3:]
    # Nothing is left to go on with.
    assert taken(plan, 2, earlier=((1, 10_000),)) == []


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

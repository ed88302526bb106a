"""Which utterances make a batch, and which batch comes when: decided from their durations alone.

An epoch is laid out as a whole before its first batch. So it is shuffled over the whole corpus,
costs seconds for millions of utterances, and is entered at any batch at once.
"""

from typing import Iterator, List, NamedTuple, Sequence, Tuple, Union

import numpy as np

Generator = np.random.Generator


class Plan(NamedTuple):
    """Batches of utterances.

    Attributes:
      order: (N,) numbers of the utterances; those of a batch are neighbours.
      bounds: (batches, 2) where each batch begins and ends in ``order``.
    """

    order: np.ndarray
    bounds: np.ndarray

    def take(self, batches: Union[np.ndarray, slice]) -> "Plan":
        """The plan with these of its batches."""
        return self._replace(bounds=self.bounds[batches])

    def batches(self) -> Iterator[np.ndarray]:
        """The numbers of each batch's utterances."""
        return (self.order[begin:end] for begin, end in self.bounds)


def in_order(
    durations: np.ndarray, order: np.ndarray, max_duration: float, offset: int = 0
) -> Plan:
    """Cuts a row of utterances into batches of at most ``max_duration`` seconds padded.

    An utterance that is longer by itself makes a batch of its own.

    Args:
      durations: (N,) seconds of all utterances.
      order: (n,) the utterances to take.
      offset: where this order will begin in that of a larger plan.
    """
    bounds: List[Tuple[int, int]] = []
    begin, longest = 0, 0.0
    for number, duration in enumerate(durations[order].tolist()):
        longest = max(longest, duration)
        if number > begin and longest * (number - begin + 1) > max_duration:
            bounds.append((begin, number))
            begin, longest = number, duration
    if len(order) > 0:
        bounds.append((begin, len(order)))
    return Plan(order, np.array(bounds, dtype=np.int64).reshape(-1, 2) + offset)


def shuffled(
    durations: np.ndarray,
    max_duration: float,
    num_buckets: int,
    rng: Generator,
    world: int = 1,
    rank: int = 0,
) -> Plan:
    """The batches of one process, of similar durations, in random order over all utterances.

    The processes take turns; the batches of a turn are of about the same duration. At the end all
    have taken as many: in one turn, where too few are left, some take the same.
    """
    buckets = bucket_of(durations, num_buckets)
    plan = in_order(durations, _shuffled_buckets(buckets, rng), max_duration)
    turns = -(-len(plan.bounds) // world)
    plan = in_turns(plan, world, rank, short=int(rng.integers(turns)))
    return plan.take(rng.permutation(turns))


def in_turns(plan: Plan, world: int, rank: int, short: int = -1) -> Plan:
    """One process's batches where ``world`` processes take turns.

    Args:
      short: the turn with fewer batches than processes, if they do not divide; some of them then
        take the same.
    """
    turns = -(-len(plan.bounds) // world)
    sizes = np.full(turns, world)
    sizes[short] -= turns * world - len(plan.bounds)
    return plan.take(np.cumsum(sizes) - sizes + rank % sizes)


def shuffled_shards(
    durations: np.ndarray,
    shards: np.ndarray,
    max_duration: float,
    num_buckets: int,
    rng: Generator,
    world: int,
    rank: int,
    streams: int,
) -> Plan:
    """The batches of one process from its share of the shards, in random order.

    The shards are dealt to the processes, and the process's own to ``streams`` that take turns: each
    goes through one shard after the other, a batch being of one shard. Every process gets as many
    batches as the others, the last ones perhaps for the second time.

    Args:
      shards: (N,) the number of each utterance's shard, rising.
    """
    buckets = bucket_of(durations, num_buckets)
    starts = np.flatnonzero(np.diff(shards, prepend=-1))
    plans: List[Plan] = []
    for begin, end in zip(starts, [*starts[1:], len(shards)]):
        order = begin + _shuffled_buckets(buckets[begin:end], rng)
        plan = in_order(durations, order, max_duration, offset=begin)
        plans.append(plan.take(rng.permutation(len(plan.bounds))))
    order = np.concatenate([plan.order for plan in plans])
    dealt = rng.permutation(len(plans))
    bounds = [
        _interleaved([plans[i].bounds for i in dealt[r::world]], streams)
        for r in range(world)
    ]
    most = max(map(len, bounds))
    return Plan(order, np.resize(bounds[rank], (most, 2)))


def bucket_of(durations: np.ndarray, num_buckets: int) -> np.ndarray:
    """(N,) the bucket of each utterance; all buckets hold about as much audio."""
    rising = np.sort(durations)
    share = np.cumsum(rising) / max(rising.sum(), 1e-9)
    edges = rising[np.searchsorted(share, np.arange(1, num_buckets) / num_buckets)]
    return np.searchsorted(edges, durations)


def _shuffled_buckets(buckets: np.ndarray, rng: Generator) -> np.ndarray:
    """Bucket after bucket, each in random order."""
    order = rng.permutation(len(buckets))
    return order[np.argsort(buckets[order], kind="stable")]


def _interleaved(shards: Sequence[np.ndarray], streams: int) -> np.ndarray:
    """(batches, 2) bounds: one batch of each stream in turn."""
    rows = [
        np.concatenate(shards[s::streams]) for s in range(min(streams, len(shards)))
    ]
    turn = np.concatenate([np.arange(len(row)) for row in rows])
    return np.concatenate(rows)[np.argsort(turn, kind="stable")]

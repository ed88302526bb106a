"""Which utterances make a batch, and which batch comes when: decided from their durations alone.

An epoch is laid out as a whole before its first batch. So it is shuffled over the whole corpus,
costs seconds for millions of utterances, and is entered at any batch at once.
"""

from typing import Callable, Iterator, List, NamedTuple, Sequence, Tuple, Union

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


class Share(NamedTuple):
    """What one of several processes takes of an epoch.

    Attributes:
      rank: its number, from 0.
      size: of how many.
      earlier: parts of the epoch that are done, as (number of processes, turns that each took), if
        there were other numbers of processes before; the rest is dealt anew.
      turns: that these processes have done of what was left for them.
    """

    rank: int = 0
    size: int = 1
    earlier: Tuple[Tuple[int, int], ...] = ()
    turns: int = 0


# (batches, processes) -> (turns, processes) numbers of the batches, -1 where a process has none
Deal = Callable[[np.ndarray, int], np.ndarray]


def share_of(plan: Plan, deal: Deal, share: Share) -> Plan:
    """One process's batches, in its order; without utterances in a turn in which it has none.

    All processes have as many, and together each batch of the plan once.
    """
    left = np.arange(len(plan.bounds))
    for size, turns in share.earlier:
        left = np.setdiff1d(left, deal(left, size)[:turns])
    turns = deal(left, share.size) if len(left) else left.reshape(0, share.size)
    own = turns[share.turns :, share.rank]
    bounds = plan.bounds[own]
    bounds[own < 0] = 0
    return plan._replace(bounds=bounds)


def in_turns(batches: np.ndarray, size: int, short: int = -1) -> np.ndarray:
    """(turns, size): ``size`` processes take the batches in turns.

    Args:
      short: the turn with fewer batches than processes, if they do not divide.
    """
    turns = -(-len(batches) // size)
    missing = turns * size - len(batches)
    end = (short % turns + 1) * size - missing
    return np.insert(batches, end, [-1] * missing).reshape(turns, size)


def shuffled(
    durations: np.ndarray,
    max_duration: float,
    num_buckets: int,
    rng: Generator,
    share: Share = Share(),
) -> Plan:
    """The batches of one process, of similar durations, in random order over all utterances.

    The processes take turns; the batches of a turn are of about the same duration.
    """
    buckets = bucket_of(durations, num_buckets)
    plan = in_order(durations, _shuffled_buckets(buckets, rng), max_duration)

    def deal(batches: np.ndarray, size: int) -> np.ndarray:
        short = int(rng.integers(-(-len(batches) // size)))
        turns = in_turns(batches, size, short)
        return turns[rng.permutation(len(turns))]

    return share_of(plan, deal, share)


def by_rising_duration(
    durations: np.ndarray, max_duration: float, share: Share = Share()
) -> Plan:
    """The batches of one process, the shortest utterances first."""
    order = np.argsort(durations, kind="stable")
    return share_of(in_order(durations, order, max_duration), in_turns, share)


def shuffled_shards(
    durations: np.ndarray,
    shards: np.ndarray,
    max_duration: float,
    num_buckets: int,
    rng: Generator,
    share: Share,
    streams: int,
) -> Plan:
    """The batches of one process from its share of the shards, in random order.

    The shards are dealt to the processes, and the process's own to ``streams`` that take turns: each
    goes through one shard after the other, a batch being of one shard. A process whose shards
    are done before the others' has no batches in the turns that are left.

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
    shard_of = np.repeat(np.arange(len(plans)), [len(plan.bounds) for plan in plans])
    whole = Plan(
        np.concatenate([plan.order for plan in plans]),
        np.concatenate([plan.bounds for plan in plans]),
    )

    def deal(batches: np.ndarray, size: int) -> np.ndarray:
        own = [batches[shard_of[batches] == s] for s in np.unique(shard_of[batches])]
        dealt = rng.permutation(len(own))
        columns = [
            _interleaved([own[i] for i in dealt[r::size]], streams) for r in range(size)
        ]
        turns = np.full((max(map(len, columns)), size), -1)
        for rank, column in enumerate(columns):
            turns[: len(column), rank] = column
        return turns

    return share_of(whole, deal, share)


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
    """One batch of each stream in turn, a stream being shards one after the other."""
    if not shards:
        return np.empty(0, dtype=np.int64)
    rows = [
        np.concatenate(shards[s::streams]) for s in range(min(streams, len(shards)))
    ]
    turn = np.concatenate([np.arange(len(row)) for row in rows])
    return np.concatenate(rows)[np.argsort(turn, kind="stable")]

"""Leaves rare n-grams out of a model, which keeps adding up to 1."""

from typing import List, Sequence, Tuple

import numpy as np

from icefall_attn.ngram.counts import NGrams
from icefall_attn.ngram.kneser_ney import Estimate


def prune(
    orders: Sequence[NGrams], estimates: Sequence[Estimate], min_count: int
) -> Tuple[List[NGrams], List[Estimate]]:
    """The model without n-grams of two words or more that occur less than ``min_count`` times.

    Others keep their probabilities, and their histories and endings are kept with them, since these
    occur as often. What was left out is backed off to: with the kept words v of a history h::

        backoff(h) = (1 - sum_v p(v | h)) / (1 - sum_v p(v | h'))
    """
    if min_count <= 1:
        return list(orders), list(estimates)
    kept = [np.full(len(orders[0].word), True)]
    kept += [grams.count >= min_count for grams in orders[1:]]
    place = [np.cumsum(mask) - 1 for mask in kept]
    new_orders, probabilities = [orders[0]], [estimates[0].probability]
    backoffs: List[np.ndarray] = []
    for n in range(1, len(orders)):
        prefix, suffix, word, count = (field[kept[n]] for field in orders[n])
        probability = estimates[n].probability[kept[n]]
        lower = estimates[n - 1].probability
        own = np.bincount(prefix, probability, minlength=len(lower))
        below = np.bincount(prefix, lower[suffix], minlength=len(lower))
        # Where every word was seen and is kept, nothing is left to back off with.
        rest = np.maximum(1.0 - below, 0.0)
        backoff = np.divide(
            np.maximum(1.0 - own, 0.0),
            rest,
            out=np.ones(len(lower)),
            where=rest > 1e-12,
        )
        backoffs.append(backoff[kept[n - 1]])
        new = NGrams(place[n - 1][prefix], place[n - 1][suffix], word, count)
        new_orders.append(new)
        probabilities.append(probability)
    backoffs.append(np.ones(len(probabilities[-1])))
    return new_orders, [Estimate(*each) for each in zip(probabilities, backoffs)]

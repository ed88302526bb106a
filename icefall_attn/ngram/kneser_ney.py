"""Interpolated modified Kneser-Ney smoothing (Chen and Goodman 1998, section 3)."""

import logging
from typing import List, NamedTuple, Sequence

import numpy as np

from icefall_attn.ngram.counts import BOS_ID, NGrams

#: Discounts of counts 1, 2 and 3 or more where a text is too small to estimate them.
_FALLBACK = (0.5, 1.0, 1.5)


class Estimate(NamedTuple):
    """One order of a model.

    Args:
      probability: (K,) of each n-gram's last word after the others; 0 for ``<s>``.
      backoff: (K,) what the lower order's probabilities are multiplied with where the n-gram
        is the history and the word after it was not seen; 1 where it is no history.
    """

    probability: np.ndarray
    backoff: np.ndarray


def kneser_ney(orders: Sequence[NGrams]) -> List[Estimate]:
    """Estimates every order from the counts of `count_ngrams`.

    With a(h w) the adjusted count (below), D its discount and h' the history h without its
    first word::

        p(w | h) = (a(h w) - D(a(h w))) / sum_v a(h v) + backoff(h) p(w | h')
        backoff(h) = sum_v D(a(h v)) / sum_v a(h v)

    The history under the unigrams is the uniform distribution over all words but ``<s>``;
    so every word has a probability, and those of each history add up to 1.
    """
    probabilities: List[np.ndarray] = []
    backoffs: List[np.ndarray] = []
    lower = np.array([1.0 / (len(orders[0].word) - 1)])
    for index, grams in enumerate(orders):
        adjusted = _adjusted(orders, index)
        discount = _discounts(adjusted, index + 1)[np.minimum(adjusted, 3)]
        size = len(lower)
        total = np.bincount(grams.prefix, adjusted, minlength=size)
        freed = np.bincount(grams.prefix, discount, minlength=size)
        backoff = np.divide(freed, total, out=np.ones(size), where=total > 0)
        own = (adjusted - discount) / total[grams.prefix]
        probability = own + backoff[grams.prefix] * lower[grams.suffix]
        if index == 0:
            probability[BOS_ID] = 0.0
        else:
            backoffs.append(backoff)
        probabilities.append(probability)
        lower = probability
    backoffs.append(np.ones(len(lower)))  # the longest n-grams are no histories
    return [Estimate(*each) for each in zip(probabilities, backoffs)]


def _adjusted(orders: Sequence[NGrams], index: int) -> np.ndarray:
    """Counts of the highest order; below it the number of different words seen in front.

    Nothing stands before ``<s>``: n-grams that begin with it keep their counts.
    """
    counts = orders[index].count
    if index + 1 < len(orders):
        before = np.bincount(orders[index + 1].suffix, minlength=len(counts))
        counts = np.where(before > 0, before, counts)
    if index == 0:
        counts = counts.copy()
        counts[BOS_ID] = 0  # never predicted
    return counts


def _discounts(adjusted: np.ndarray, order: int) -> np.ndarray:
    """(4,) discounts of counts 0, 1, 2 and 3 or more, from how many n-grams have 1 to 4."""
    n1, n2, n3, n4 = (int((adjusted == count).sum()) for count in (1, 2, 3, 4))
    found = _FALLBACK
    if n1 and n2 and n3:
        y = n1 / (n1 + 2 * n2)
        estimated = (y, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3)
        if min(estimated) > 0:
            found = estimated
    if found is _FALLBACK:
        logging.info(
            "order %d: too little text to estimate discounts (%d, %d, %d and %d n-grams were "
            "seen 1, 2, 3 and 4 times); taking %s",
            order,
            *(n1, n2, n3, n4),
            found,
        )
    return np.array([0.0, *found])

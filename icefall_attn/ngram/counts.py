"""How often each n-gram occurs, in arrays: four integers for each, whatever its order."""

from array import array
from typing import Iterable, List, NamedTuple, Sequence, Tuple

import numpy as np

from icefall_attn.errors import UserError

BOS, EOS = "<s>", "</s>"
BOS_ID, EOS_ID = 0, 1


class NGrams(NamedTuple):
    """The K different n-grams of one order, sorted by their words' ids.

    Args:
      prefix: (K,) the n-gram without its last word, as an index among those of order n - 1.
      suffix: (K,) the n-gram without its first word, likewise.
      word: (K,) id of the last word.
      count: (K,) how often it occurs.
    """

    prefix: np.ndarray
    suffix: np.ndarray
    word: np.ndarray
    count: np.ndarray


def count_ngrams(
    sentences: Iterable[Sequence[str]], order: int
) -> Tuple[List[str], List[NGrams]]:
    """Counts the n-grams of ``<s> WORDS </s>`` over all sentences, which are read once.

    Args:
      sentences: words of each; one without words is left out.
      order: the longest n-grams.

    Returns:
      The words by id, ``<s>`` and ``</s>`` first, and the n-grams of orders 1 to ``order``.

    Raises:
      UserError: no words, no n-gram of the wanted order, ``<s>`` or ``</s>`` as a word.
    """
    words, stream = _read(sentences)
    zeros = np.zeros(len(words), dtype=np.int64)
    counts = np.bincount(stream, minlength=len(words))
    orders = [NGrams(zeros, zeros, np.arange(len(words)), counts)]
    # ids[i]: the n-gram that ends with word i of the stream; -1 where a sentence is too short.
    ids = stream
    for n in range(2, order + 1):
        inside = (ids[:-1] >= 0) & (stream[1:] != BOS_ID)
        keys = ids[:-1][inside] * len(words) + stream[1:][inside]
        keys, first, inverse, counts = np.unique(
            keys, return_index=True, return_inverse=True, return_counts=True
        )
        if len(keys) == 0:
            raise UserError(f"no sentence is long enough for order {n}; take {n - 1}")
        suffix = ids[1:][inside][first]
        prefix, word = np.divmod(keys, len(words))
        orders.append(NGrams(prefix, suffix, word, counts))
        ids = np.full(len(stream), -1, dtype=np.int64)
        ids[1:][inside] = inverse
    return words, orders


def _read(sentences: Iterable[Sequence[str]]) -> Tuple[List[str], np.ndarray]:
    """The words by id, and the ids of the text, ``<s>`` and ``</s>`` around each sentence."""
    ids = {BOS: BOS_ID, EOS: EOS_ID}
    stream = array("q")
    for sentence in sentences:
        if not sentence:
            continue
        stream.append(BOS_ID)
        for word in sentence:
            if word in (BOS, EOS):
                raise UserError(
                    f"the text holds '{word}', which marks the ends of sentences; "
                    f"remove it"
                )
            stream.append(ids.setdefault(word, len(ids)))
        stream.append(EOS_ID)
    if not stream:
        raise UserError("the training text is empty: there are no n-grams to count")
    return list(ids), np.frombuffer(stream, dtype=np.int64)

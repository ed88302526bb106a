"""How much later a streaming model says a token than one that hears the whole utterance."""

from typing import Hashable, List, NamedTuple, Optional, Sequence

import kaldialign

from icefall_attn.scoring.errors import EPSILON


class Emission(NamedTuple):
    """The tokens of a hypothesis and the encoder frame that emitted each."""

    tokens: Sequence[Hashable]
    frames: Sequence[int]


class Delays(NamedTuple):
    """Of one utterance, in encoder frames; negative where the streaming model is earlier.

    Attributes:
      tokens: of each token that both have, by the alignment of fewest errors.
      first: of the first token, None if the two do not begin with the same.
      last: of the last token, None if the two do not end with the same.
    """

    tokens: List[int]
    first: Optional[int]
    last: Optional[int]


def emission_delays(streaming: Emission, reference: Emission) -> Delays:
    """Of a hypothesis against that of a model which hears all, greedy search's for instance."""
    spoken = [str(token) for token in streaming.tokens]
    expected = [str(token) for token in reference.tokens]
    delays: List[int] = []
    first = last = None
    ours = theirs = 0
    for expect, say in kaldialign.align(expected, spoken, EPSILON):
        if expect == say:
            delays.append(streaming.frames[ours] - reference.frames[theirs])
            if ours == theirs == 0:
                first = delays[-1]
            if ours == len(spoken) - 1 and theirs == len(expected) - 1:
                last = delays[-1]
        ours += say != EPSILON
        theirs += expect != EPSILON
    return Delays(delays, first, last)

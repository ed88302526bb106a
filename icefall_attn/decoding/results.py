"""What a search returns."""

from dataclasses import dataclass, field
from typing import List

from icefall_attn.decoding.config import SearchConfig


@dataclass
class Hypothesis:
    """One label sequence.

    Args:
      tokens: token ids without blank.
      frames: for each token the encoder frame (0, 1, ...) that emitted it.
      score: natural log-probability of the sequence as the search sums it: of the one path
        (greedy_search) or of all paths that were kept (modified_beam_search, fast_beam_search).
    """

    tokens: List[int] = field(default_factory=list)
    frames: List[int] = field(default_factory=list)
    score: float = 0.0


def rank(hypotheses: List[Hypothesis], config: SearchConfig) -> List[Hypothesis]:
    """The best ``config.nbest``, by score or, with ``config.length_norm``, by score per token."""

    def key(hypothesis: Hypothesis) -> float:
        if not config.length_norm:
            return hypothesis.score
        # The + 1 stands for the end of the sentence; an empty hypothesis may win.
        return hypothesis.score / (len(hypothesis.tokens) + 1)

    return sorted(hypotheses, key=key, reverse=True)[: config.nbest]

"""What a search returns."""

from dataclasses import dataclass, field
from typing import List, Optional

from icefall_attn.decoding.config import SearchConfig

#: Seconds from one encoder frame to the next.
FRAME_SECONDS = 0.04


@dataclass
class Hypothesis:
    """One label sequence.

    Args:
      tokens: token ids without blank.
      frames: for each token the encoder frame (0, 1, ...) that emitted it.
      score: natural log-probability of the sequence as the search sums it: of the one path
        (greedy_search, fast_beam_search_LG) or of all paths that were kept (the others), scaled
        n-grams included.
      words: what a search through a graph of words found; None of the others, and where there
        was no path through the graph. The tokens spell them.
    """

    tokens: List[int] = field(default_factory=list)
    frames: List[int] = field(default_factory=list)
    score: float = 0.0
    words: Optional[List[str]] = None


def rank(hypotheses: List[Hypothesis], config: SearchConfig) -> List[Hypothesis]:
    """The best ``config.nbest``, by score or, with ``config.length_norm``, by score per token."""

    def key(hypothesis: Hypothesis) -> float:
        if not config.length_norm:
            return hypothesis.score
        # The + 1 stands for the end of the sentence; an empty hypothesis may win.
        return hypothesis.score / (len(hypothesis.tokens) + 1)

    return sorted(hypotheses, key=key, reverse=True)[: config.nbest]

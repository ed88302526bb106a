"""What a search returns."""

from dataclasses import dataclass, field
from typing import List


@dataclass
class Hypothesis:
    """One label sequence.

    Args:
      tokens: token ids without blank.
      frames: for each token the encoder frame (0, 1, ...) that emitted it.
      score: natural log-probability of the sequence as the search sums it: of the one path
        (greedy_search, fast_beam_search) or of all merged paths (modified_beam_search).
    """

    tokens: List[int] = field(default_factory=list)
    frames: List[int] = field(default_factory=list)
    score: float = 0.0

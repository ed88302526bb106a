"""The options of a search."""

import math
from dataclasses import dataclass
from typing import Literal

from icefall_attn.errors import UserError


@dataclass
class SearchConfig:
    """How hypotheses are searched.

    Args:
      method: ``greedy_search``, ``modified_beam_search`` (at most one symbol a frame,
        equal label sequences merged by log-add) or one of k2's graph searches:
        ``fast_beam_search`` (the tokens of the best paths), ``fast_beam_search_nbest`` (of
        sampled paths, those whose alignments add up to most), ``fast_beam_search_LG`` and
        ``fast_beam_search_nbest_LG`` (the same of words, through the graph of an n-gram model).
      max_symbols_per_frame: greedy_search: most symbols that one encoder frame may emit.
      beam_size: modified_beam_search: hypotheses kept per utterance.
      fast_beam: fast_beam_search*: states this far below the best (natural log) are dropped.
      max_contexts: fast_beam_search*: most contexts (last ``history`` tokens) kept per frame.
      max_states: fast_beam_search*: most states kept per frame.
      history: fast_beam_search*: tokens that tell two hypotheses apart; 0 takes the
        predictor's own context size if it has one, otherwise the longest history that k2's
        64-bit states allow, at most 10.
      graph: *_LG: file of the graph of words, from ``local/compile_lg.py``.
      ngram_lm_scale: *_LG: weight of the n-grams' log-probabilities.
      num_paths: fast_beam_search_nbest*: paths sampled from the lattice.
      nbest_scale: fast_beam_search_nbest*: weight of the lattice's scores while paths are
        sampled; a smaller one gives more different paths.
      nbest: most hypotheses returned per utterance.
      length_norm: modified_beam_search, fast_beam_search: rank finished hypotheses by
        log-probability over (number of tokens + 1), much as icefall does, instead of by
        log-probability.
    """

    method: Literal[
        "greedy_search",
        "modified_beam_search",
        "fast_beam_search",
        "fast_beam_search_nbest",
        "fast_beam_search_LG",
        "fast_beam_search_nbest_LG",
    ] = "greedy_search"
    max_symbols_per_frame: int = 1
    beam_size: int = 4
    fast_beam: float = 20.0
    max_contexts: int = 8
    max_states: int = 64
    history: int = 0
    graph: str = "data/lang/LG.pt"
    ngram_lm_scale: float = 0.01
    num_paths: int = 200
    nbest_scale: float = 0.5
    nbest: int = 4
    length_norm: bool = True

    @property
    def of_words(self) -> bool:
        """True if the method searches a graph of words."""
        return self.method.endswith("_LG")

    @property
    def samples(self) -> bool:
        """True if the method samples paths of the lattice."""
        return "_nbest" in self.method

    def validate(self) -> None:
        """Raises `UserError` when a value has no meaning."""
        for name in (
            "max_symbols_per_frame",
            "beam_size",
            "max_contexts",
            "max_states",
            "num_paths",
            "nbest",
        ):
            value = getattr(self, name)
            if value < 1:
                raise UserError(f"search.{name} must be at least 1, not {value}")
        if self.history < 0:
            raise UserError(
                f"search.history must be 0 (automatic) or more, not {self.history}"
            )
        for name in ("fast_beam", "nbest_scale"):
            value = getattr(self, name)
            if not value > 0:
                raise UserError(f"search.{name} must be greater than 0, not {value}")
        if not 0 <= self.ngram_lm_scale < math.inf:
            raise UserError(
                f"search.ngram_lm_scale must be 0 or more, not {self.ngram_lm_scale}"
            )

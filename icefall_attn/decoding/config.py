"""The options of a search."""

from dataclasses import dataclass
from typing import Literal

from icefall_attn.errors import UserError


@dataclass
class SearchConfig:
    """How hypotheses are searched.

    Args:
      method: ``greedy_search``, ``modified_beam_search`` (at most one symbol a frame,
        equal label sequences merged by log-add) or ``fast_beam_search`` (k2's graph search).
      max_symbols_per_frame: greedy_search: most symbols that one encoder frame may emit.
      beam_size: modified_beam_search: hypotheses kept per utterance.
      fast_beam: fast_beam_search: states this far below the best (natural log) are dropped.
      max_contexts: fast_beam_search: most contexts (last ``history`` tokens) kept per frame.
      max_states: fast_beam_search: most states kept per frame.
      history: fast_beam_search: tokens that tell two hypotheses apart; 0 takes the
        predictor's own context size if it has one, otherwise the longest history that k2's
        64-bit states allow, at most 10.
      nbest: most hypotheses returned per utterance.
      length_norm: modified_beam_search, fast_beam_search: rank finished hypotheses by
        log-probability over (number of tokens + 1), much as icefall does, instead of by
        log-probability.
    """

    method: Literal["greedy_search", "modified_beam_search", "fast_beam_search"] = (
        "greedy_search"
    )
    max_symbols_per_frame: int = 1
    beam_size: int = 4
    fast_beam: float = 20.0
    max_contexts: int = 8
    max_states: int = 64
    history: int = 0
    nbest: int = 4
    length_norm: bool = True

    def validate(self) -> None:
        """Raises `UserError` when a value has no meaning."""
        for name in (
            "max_symbols_per_frame",
            "beam_size",
            "max_contexts",
            "max_states",
            "nbest",
        ):
            value = getattr(self, name)
            if value < 1:
                raise UserError(f"search.{name} must be at least 1, not {value}")
        if self.history < 0:
            raise UserError(
                f"search.history must be 0 (automatic) or more, not {self.history}"
            )
        if not self.fast_beam > 0:
            raise UserError(
                f"search.fast_beam must be greater than 0, not {self.fast_beam}"
            )

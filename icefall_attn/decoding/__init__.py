"""Searches: from encoder frames to hypotheses.

A search knows a model only as *encode, predict one step, join*:

- ``model.encode(features (B, T, F), lengths (B,)) -> (encoder_out (B, T', D), lengths (B,))``;
- ``model.vocab_size``, ``model.blank_id``;
- ``model.predictor.init_state(batch_size, device)``, a list of batch-first tensors, and
  ``model.predictor.step(tokens (N,), state) -> (output (N, D), state)``;
- ``model.joiner.project_encoder``, ``project_predictor`` and ``joiner(enc, pred) -> logits``.
"""

from icefall_attn.decoding.config import SearchConfig
from icefall_attn.decoding.graphs import word_graph
from icefall_attn.decoding.recognizer import recognize
from icefall_attn.decoding.results import Hypothesis
from icefall_attn.decoding.search import SEARCHES, WORD_SEARCHES, search

__all__ = [
    "SEARCHES",
    "WORD_SEARCHES",
    "Hypothesis",
    "SearchConfig",
    "recognize",
    "search",
    "word_graph",
]

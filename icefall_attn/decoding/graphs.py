"""Graphs that k2's search follows: of all token sequences, or of an n-gram model's words."""

from dataclasses import dataclass
from typing import Any, Optional, Sequence

import torch
from torch import Tensor

from icefall_attn.decoding.config import SearchConfig
from icefall_attn.decoding.word_graph import load_word_graph
from icefall_attn.errors import UserError
from icefall_attn.environment import why_no_k2

_ABOVE_ALL = 1.0e6


@dataclass
class DecodingGraph:
    """A graph whose paths end with a symbol of their own, the vocabulary size V.

    k2's search (1.23.4) drops the scores and words of final arcs and gives their states as
    many places as the hypotheses themselves; an arc with a symbol has neither fault.

    Args:
      fsa: k2.Fsa on the model's device; of words: arc a has the attribute ``graph_arc``, a + 1.
      arc_words: of words: k2.RaggedTensor [A + 1][ids]; row 0 is for blanks, which say none.
      words: of words: by id.
    """

    fsa: Any
    arc_words: Any = None
    words: Sequence[str] = ()


def token_graph(vocab_size: int, device: torch.device) -> DecodingGraph:
    """All sequences of tokens, equally good."""
    import k2

    arcs = k2.trivial_graph(vocab_size - 1).arcs.values()
    return DecodingGraph(k2.Fsa(_with_end(arcs, vocab_size)).to(device))


def word_graph(
    config: SearchConfig, tokens: Sequence[str], device: torch.device
) -> Optional[DecodingGraph]:
    """The graph that ``config.graph`` names, or None where ``config.method`` needs none.

    Args:
      config: the method, the file, and ``ngram_lm_scale`` for the n-grams' log-probabilities.
      tokens: the model's, by id.
      device: of the model.

    Raises:
      UserError: the file is missing, damaged or made for other tokens; no k2.
    """
    if not config.of_words:
        return None
    k2 = import_k2(config, device)
    stored = load_word_graph(config.graph)
    stored.check_tokens(tokens, config.graph)
    fsa = k2.Fsa(_with_end(stored.arcs, len(tokens))).to(device)
    ends = fsa.labels == -1
    fsa.scores = torch.where(ends, fsa.scores, fsa.scores * config.ngram_lm_scale)
    fsa.graph_arc = torch.arange(1, fsa.num_arcs + 1, dtype=torch.int32, device=device)
    # A row for blanks before those of the arcs, and one behind for the new last arc.
    splits = stored.word_splits
    splits = torch.cat([splits[:1], splits, splits[-1:]])
    shape = k2.ragged.create_ragged_shape2(row_splits=splits.to(device))
    arc_words = k2.RaggedTensor(shape, stored.word_ids.to(device))
    return DecodingGraph(fsa, arc_words, stored.words)


def import_k2(config: SearchConfig, device: torch.device):
    """k2, if it can be used.

    Raises:
      UserError: it cannot be imported, or has no CUDA for a model on a GPU.
    """
    reason = why_no_k2(device.type)
    if reason:
        raise UserError(
            f"{config.method} needs k2, but {reason}; choose search.method=modified_beam_search"
        )
    import k2

    return k2


def _with_end(arcs: Tensor, end: int) -> Tensor:
    """Arcs (A, 4) whose final ones bear the symbol ``end``, and one more to a new last state.

    k2 treats that arc as a hypothesis of its own, which must not be cut: its score is above
    all that it competes with. `search_lattice` takes the score out again.
    """
    arcs = arcs.clone()
    arcs[arcs[:, 2] == -1, 2] = end
    last = int(arcs[:, 1].max())
    score = int(torch.tensor([_ABOVE_ALL]).view(torch.int32))
    return torch.cat([arcs, arcs.new_tensor([[last, last + 1, -1, score]])])

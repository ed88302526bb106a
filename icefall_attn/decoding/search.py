"""The registry of searches and the one function that calls them."""

from typing import Callable, Dict, List, Optional

import torch
from torch import Tensor

from icefall_attn.decoding.beam import modified_beam_search
from icefall_attn.decoding.config import SearchConfig
from icefall_attn.decoding.fast_beam import (
    fast_beam_search,
    fast_beam_search_lg,
    fast_beam_search_nbest,
    fast_beam_search_nbest_lg,
)
from icefall_attn.decoding.graphs import DecodingGraph
from icefall_attn.decoding.greedy import greedy_search
from icefall_attn.decoding.results import Hypothesis
from icefall_attn.errors import UserError

#: A search takes (model, encoder_out, lengths, config) and returns the n-best lists.
SEARCHES: Dict[str, Callable[..., List[List[Hypothesis]]]] = {
    "greedy_search": greedy_search,
    "modified_beam_search": modified_beam_search,
    "fast_beam_search": fast_beam_search,
    "fast_beam_search_nbest": fast_beam_search_nbest,
}

#: The same through a graph of words, which comes last.
WORD_SEARCHES: Dict[str, Callable[..., List[List[Hypothesis]]]] = {
    "fast_beam_search_LG": fast_beam_search_lg,
    "fast_beam_search_nbest_LG": fast_beam_search_nbest_lg,
}


@torch.no_grad()
def search(
    model,
    encoder_out: Tensor,
    lengths: Tensor,
    config: SearchConfig,
    graph: Optional[DecodingGraph] = None,
) -> List[List[Hypothesis]]:
    """Searches the hypotheses of a batch with the method that ``config`` names.

    Args:
      model: a transducer (see the package's docstring), in evaluation mode.
      encoder_out: (B, T', D); frames past an utterance's length are never looked at.
      lengths: (B,) int64, encoder frames of each utterance; 0 gives the empty hypothesis.
      config: the method and its options.
      graph: what `word_graph` gives for ``config``.

    Returns:
      For each utterance 1 to ``config.nbest`` hypotheses, best first.

    Raises:
      UserError: unknown method, an option without meaning, k2 missing.
    """
    if config.method not in {**SEARCHES, **WORD_SEARCHES}:
        raise UserError(
            f"unknown search.method '{config.method}'; choose from "
            f"{', '.join([*SEARCHES, *WORD_SEARCHES])}"
        )
    config.validate()
    if encoder_out.dim() != 3 or lengths.shape != encoder_out.shape[:1]:
        raise ValueError(
            f"expected encoder_out (B, T', D) and lengths (B,), not "
            f"{tuple(encoder_out.shape)} and {tuple(lengths.shape)}"
        )
    if encoder_out.shape[0] == 0:
        return []
    if config.of_words:
        if graph is None:
            raise ValueError(f"{config.method} needs the graph that word_graph reads")
        return WORD_SEARCHES[config.method](model, encoder_out, lengths, config, graph)
    return SEARCHES[config.method](model, encoder_out, lengths, config)

"""From features to hypotheses, in pieces that fit the memory."""

import logging
from typing import List, Optional

import torch
from torch import Tensor

from icefall_attn.decoding.config import SearchConfig
from icefall_attn.decoding.graphs import DecodingGraph
from icefall_attn.decoding.results import Hypothesis
from icefall_attn.decoding.search import search


@torch.no_grad()
def recognize(
    model,
    features: Tensor,
    lengths: Tensor,
    config: SearchConfig,
    graph: Optional[DecodingGraph] = None,
) -> List[Optional[List[Hypothesis]]]:
    """Encodes and searches a batch; one that does not fit the memory is halved, and again.

    Args:
      model: a transducer in evaluation mode.
      features: (B, T, F), on the model's device.
      lengths: (B,) int64 feature frames.
      config: the search.
      graph: what `word_graph` gives for ``config``.

    Returns:
      N-best list of each utterance, best first; None for one that does not fit even alone.
    """
    if len(lengths) == 0:
        return []
    try:
        encoder_out, encoder_lengths = model.encode(features, lengths)
        # Fewer frames than the subsampling needs give none.
        encoder_lengths = encoder_lengths.clamp(min=0, max=encoder_out.shape[1])
        return list(search(model, encoder_out, encoder_lengths, config, graph))
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        # Out of the block, so that the failed attempt's tensors are let go.
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    frames = int(lengths.max())
    if len(lengths) == 1:
        logging.warning("an utterance of %d frames does not fit the memory", frames)
        return [None]
    half = len(lengths) // 2
    logging.warning(
        "%d utterances of up to %d frames do not fit the memory; trying %d",
        len(lengths),
        frames,
        half,
    )
    results: List[Optional[List[Hypothesis]]] = []
    for part in (slice(0, half), slice(half, None)):
        longest = int(lengths[part].max())
        piece = features[part, :longest]
        results += recognize(model, piece, lengths[part], config, graph)
    return results


def is_out_of_memory(error: BaseException) -> bool:
    """True if an error of the CPU's or the GPU's allocator says that memory ran out."""
    if isinstance(error, MemoryError):
        return True
    text = str(error).lower()
    return any(
        words in text
        for words in ("out of memory", "can't allocate memory", "not enough memory")
    )

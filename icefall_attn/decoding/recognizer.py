"""From features to hypotheses, in pieces that fit the memory."""

import logging
import time
from dataclasses import dataclass
from typing import List, Optional, Sequence

import torch
from torch import Tensor

from icefall_attn.decoding.config import SearchConfig
from icefall_attn.decoding.graphs import DecodingGraph
from icefall_attn.decoding.results import Hypothesis
from icefall_attn.decoding.search import search


@dataclass
class Search:
    """One of the searches that go through the same encoder frames.

    Args:
      config: method and options.
      graph: what `word_graph` gives for ``config``.
      seconds: spent so far, the encoder's share included.
    """

    config: SearchConfig
    graph: Optional[DecodingGraph] = None
    seconds: float = 0.0


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
    return recognize_by([Search(config, graph)], model, features, lengths)[0]


@torch.no_grad()
def recognize_by(
    searches: Sequence[Search], model, features: Tensor, lengths: Tensor
) -> List[List[Optional[List[Hypothesis]]]]:
    """`recognize` by several searches, for which a batch is encoded once.

    Returns:
      What each of them finds.
    """
    if len(lengths) == 0:
        return [[] for _ in searches]
    try:
        begin = now(features.device)
        encoder_out, encoder_lengths = model.encode(features, lengths)
        # Fewer frames than the subsampling needs give none.
        encoder_lengths = encoder_lengths.clamp(min=0, max=encoder_out.shape[1])
        encoding = now(features.device) - begin
        found: List[List[Optional[List[Hypothesis]]]] = []
        for one in searches:
            begin = now(features.device)
            found.append(
                list(search(model, encoder_out, encoder_lengths, one.config, one.graph))
            )
            one.seconds += encoding + now(features.device) - begin
        return found
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        # Out of the block, so that the failed attempt's tensors are let go.
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    frames = int(lengths.max())
    if len(lengths) == 1:
        logging.warning("an utterance of %d frames does not fit the memory", frames)
        return [[None] for _ in searches]
    half = len(lengths) // 2
    logging.warning(
        "%d utterances of up to %d frames do not fit the memory; trying %d",
        len(lengths),
        frames,
        half,
    )
    halves = []
    for part in (slice(0, half), slice(half, None)):
        longest = int(lengths[part].max())
        piece = features[part, :longest]
        halves.append(recognize_by(searches, model, piece, lengths[part]))
    return [first + second for first, second in zip(*halves)]


def now(device: torch.device) -> float:
    """Seconds on the clock when all that was asked of a device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def is_out_of_memory(error: BaseException) -> bool:
    """True if an error of the CPU's or the GPU's allocator says that memory ran out."""
    if isinstance(error, MemoryError):
        return True
    text = str(error).lower()
    return any(
        words in text
        for words in ("out of memory", "can't allocate memory", "not enough memory")
    )

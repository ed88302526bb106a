"""Batches of different lengths without a look at the padding."""

from typing import List, Tuple

import torch
from torch import Tensor


def by_falling_length(
    encoder_out: Tensor, lengths: Tensor
) -> Tuple[Tensor, Tensor, Tensor]:
    """Sorts a batch so that at frame t the first ``active_counts(lengths)[t]`` rows are alive.

    Args:
      encoder_out: (B, T', D).
      lengths: (B,) int64.

    Returns:
      order (B,): the utterance at each sorted position; encoder_out and lengths, sorted.
    """
    order = torch.sort(lengths, descending=True, stable=True).indices
    return order, encoder_out[order.to(encoder_out.device)], lengths[order]


def active_counts(lengths: Tensor) -> List[int]:
    """For each frame 0 .. max(lengths)-1 the number of utterances that have it."""
    lengths = lengths.cpu()
    frames = torch.arange(int(lengths.max())).unsqueeze(1)
    return (lengths > frames).sum(dim=1).tolist()

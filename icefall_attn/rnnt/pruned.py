"""The pruned transducer loss (Kuang et al. 2022, "Pruned RNN-T for fast, memory-efficient ASR training")."""

from typing import Callable, Tuple

import torch
from torch import Tensor

from icefall_attn.rnnt import k2_backend as backend
from icefall_attn.rnnt.config import LossConfig


def pruned_transducer_loss(
    *,
    simple_encoder: Tensor,
    simple_predictor: Tensor,
    encoder: Tensor,
    predictor: Tensor,
    joiner: Callable[[Tensor, Tensor], Tensor],
    labels: Tensor,
    label_lengths: Tensor,
    lengths: Tensor,
    config: LossConfig,
) -> Tuple[Tensor, Tensor]:
    """The simple loss, and the pruned loss on the labels that the simple one finds likely.

    Args:
      simple_encoder: ``(B, T', V)``, the encoder's part of the simple joiner.
      simple_predictor: ``(B, U + 1, V)``, the predictor's part.
      encoder: ``(B, T', J)``, input of the joiner.
      predictor: ``(B, U + 1, J)``, input of the joiner.
      joiner: ``(B, T', 1, J)`` and ``(B, T', R, J)`` to logits ``(B, T', R, V)``.
      labels: ``(B, U)``; padding may hold anything.
      label_lengths: ``(B,)``, each from 1 to the frames of the utterance.
      lengths: ``(B,)`` encoder frames.
      config: the options.

    Returns:
      Both losses per utterance, ``(B,)`` float32 in nats. The recursions run in float32
      whatever autocast says.
    """
    # k2 wants room for every label of the padded batch, and a valid id everywhere
    padding = torch.arange(labels.size(1), device=labels.device) >= label_lengths.unsqueeze(1)
    labels = labels.masked_fill(padding, 0)
    boundary = backend.make_boundary(label_lengths, lengths)
    with torch.autocast(encoder.device.type, enabled=False):
        simple, occupation = backend.smoothed_loss(
            simple_encoder.float(), simple_predictor.float(), labels, boundary, config
        )
    ranges = backend.prune_ranges(occupation, boundary, config.prune_range)
    logits = joiner(encoder.unsqueeze(2), gather_labels(predictor, ranges))
    with torch.autocast(encoder.device.type, enabled=False):
        pruned = backend.pruned_loss(logits.float(), labels, ranges, boundary, config)
    return simple, pruned


def gather_labels(predictor: Tensor, ranges: Tensor) -> Tensor:
    """The predictor's outputs that each frame keeps.

    k2 1.23.4's own function makes a ``(B, T', U + 1, J)`` tensor in its backward pass; this one
    does not.

    Args:
      predictor: ``(B, U + 1, J)``.
      ranges: ``(B, T', R)`` positions.

    Returns:
      ``(B, T', R, J)``.
    """
    batch, positions, dim = predictor.shape
    first = torch.arange(batch, device=ranges.device)[:, None, None] * positions
    rows = predictor.reshape(-1, dim).index_select(0, (ranges + first).flatten())
    return rows.view(*ranges.shape, dim)

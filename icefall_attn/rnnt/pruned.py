"""The pruned transducer loss.

Kuang et al. 2022, "Pruned RNN-T for fast, memory-efficient ASR training".
"""

from typing import Tuple

import torch
from torch import Tensor, nn

from icefall_attn.rnnt.arcs import (
    close,
    pruned_arcs,
    raise_gradient,
    smoothed_arcs,
)
from icefall_attn.rnnt.config import LossConfig
from icefall_attn.rnnt.joined import join_cells
from icefall_attn.rnnt.lattice import choose_backend, score_and_occupation, total_score
from icefall_attn.rnnt.ranges import covering_range, prune_ranges


def pruned_transducer_loss(
    *,
    simple_encoder: Tensor,
    simple_predictor: Tensor,
    encoder: Tensor,
    predictor: Tensor,
    output: nn.Linear,
    labels: Tensor,
    label_lengths: Tensor,
    lengths: Tensor,
    config: LossConfig,
) -> Tuple[Tensor, Tensor]:
    """The simple loss, and the pruned loss on the labels that the simple one finds likely.

    Args:
      simple_encoder: ``(B, T', V)``, the encoder's part of the simple joiner.
      simple_predictor: ``(B, U + 1, V)``, the predictor's part.
      encoder: ``(B, T', J)``, input of the joiner's tanh.
      predictor: ``(B, U + 1, J)``, its other input.
      output: the joiner's output layer, J to V.
      labels: ``(B, U)``; padding may hold anything.
      label_lengths: ``(B,)``; 0 is allowed.
      lengths: ``(B,)`` encoder frames, at least 1.
      config: the options.

    Returns:
      Both losses per utterance, ``(B,)`` in nats; infinite where no alignment exists. All of it is
      computed in float32 whatever autocast says.
    """
    backend = choose_backend(config.backend, encoder.device.type)
    labels = _clean(labels, label_lengths)
    with torch.autocast(encoder.device.type, enabled=False):
        simple, ranges = simple_loss(
            simple_encoder, simple_predictor, labels, label_lengths, lengths, config
        )
        blank, label = join_cells(
            *map(_at_least_float32, (encoder, predictor, output.weight, output.bias)),
            labels,
            ranges,
            config.negligible,
        )
        px, py = pruned_arcs(blank, label, ranges, predictor.size(1))
        px, py = close(raise_gradient(px, config.fast_emit), py, lengths, config)
        score = total_score(px, py, label_lengths, lengths, backend)
    return simple, -score


def simple_loss(
    am: Tensor,
    lm: Tensor,
    labels: Tensor,
    label_lengths: Tensor,
    lengths: Tensor,
    config: LossConfig,
) -> Tuple[Tensor, Tensor]:
    """The loss of the simple joiner ``(B,)`` and the ranges ``(B, T', R)`` it suggests."""
    backend = choose_backend(config.backend, am.device.type)
    px, py = smoothed_arcs(am.float(), lm.float(), labels, label_lengths, config)
    px, py = close(px, py, lengths, config)
    total, px_grad, py_grad = score_and_occupation(
        px, py, label_lengths, lengths, backend
    )
    regular = config.rnnt_type == "regular"
    width = covering_range(config.prune_range, label_lengths, lengths, regular)
    return -total, prune_ranges(px_grad, py_grad, label_lengths, lengths, width)


def full_loss(
    logits: Tensor,
    labels: Tensor,
    label_lengths: Tensor,
    lengths: Tensor,
    config: LossConfig,
) -> Tensor:
    """The unpruned loss ``(B,)`` of logits ``(B, T', U + 1, V)``, for reference: it takes much memory."""
    labels = _clean(labels, label_lengths)
    dtype = torch.promote_types(logits.dtype, torch.float32)
    log_probs = logits.log_softmax(dim=3, dtype=dtype)
    py = log_probs[..., 0].transpose(1, 2)
    index = labels[:, None, :, None].expand(-1, log_probs.size(1), -1, 1)
    px = log_probs[:, :, :-1].gather(3, index).squeeze(3).transpose(1, 2)
    px, py = close(raise_gradient(px, config.fast_emit), py, lengths, config)
    backend = choose_backend(config.backend, logits.device.type)
    return -total_score(px, py, label_lengths, lengths, backend)


def _at_least_float32(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _clean(labels: Tensor, label_lengths: Tensor) -> Tensor:
    """Labels with blank in their padding: a valid id everywhere."""
    padding = torch.arange(
        labels.size(1), device=labels.device
    ) >= label_lengths.unsqueeze(1)
    return labels.masked_fill(padding, 0)

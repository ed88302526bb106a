"""k2's recursions: the only place of training that imports k2."""

from typing import Tuple

import torch
from torch import Tensor

from icefall_attn.errors import UserError
from icefall_attn.rnnt.config import LossConfig

try:
    import k2
except ImportError:
    k2 = None


def available() -> bool:
    """Whether k2 can be imported."""
    return k2 is not None


def _k2():
    if k2 is None:
        raise UserError("the transducer loss needs k2: run tools/setup_env.sh")
    return k2


def smoothed_loss(
    am: Tensor, lm: Tensor, labels: Tensor, boundary: Tensor, config: LossConfig
) -> Tuple[Tensor, Tuple[Tensor, Tensor]]:
    """k2's ``rnnt_loss_smoothed``.

    Args:
      am: ``(B, T', V)`` float32.
      lm: ``(B, U + 1, V)`` float32.
      labels: ``(B, U)`` int64.
      boundary: ``(B, 4)`` int64: 0, 0, labels, frames.

    Returns:
      The losses ``(B,)`` and the occupations of the label arcs ``(B, U, T' + 1)`` (for
      ``modified`` types ``(B, U, T')``) and blank arcs ``(B, U + 1, T')``.
    """
    return _k2().rnnt_loss_smoothed(
        lm=lm,
        am=am,
        symbols=labels,
        termination_symbol=0,
        lm_only_scale=config.lm_scale,
        am_only_scale=config.am_scale,
        boundary=boundary,
        rnnt_type=config.rnnt_type,
        delay_penalty=config.delay_penalty,
        reduction="none",
        return_grad=True,
    )


def prune_ranges(
    occupation: Tuple[Tensor, Tensor], boundary: Tensor, prune_range: int
) -> Tensor:
    """``(B, T', R)`` int64: the labels that each frame keeps, R = min(prune_range, U + 1)."""
    label_arcs, blank_arcs = occupation
    # k2 prints to stdout if it has to lower the range itself
    width = min(prune_range, blank_arcs.size(1))
    return _k2().get_rnnt_prune_ranges(label_arcs, blank_arcs, boundary, width)


def pruned_loss(
    logits: Tensor, labels: Tensor, ranges: Tensor, boundary: Tensor, config: LossConfig
) -> Tensor:
    """k2's ``rnnt_loss_pruned`` of ``(B, T', R, V)`` float32 logits: ``(B,)``."""
    return _k2().rnnt_loss_pruned(
        logits=logits,
        symbols=labels,
        ranges=ranges,
        termination_symbol=0,
        boundary=boundary,
        rnnt_type=config.rnnt_type,
        delay_penalty=config.delay_penalty,
        reduction="none",
    )


def full_loss(logits: Tensor, labels: Tensor, boundary: Tensor, config: LossConfig) -> Tensor:
    """k2's unpruned ``rnnt_loss`` of ``(B, T', U + 1, V)`` float32 logits: ``(B,)``."""
    return _k2().rnnt_loss(
        logits=logits,
        symbols=labels,
        termination_symbol=0,
        boundary=boundary,
        rnnt_type=config.rnnt_type,
        delay_penalty=config.delay_penalty,
        reduction="none",
    )


def make_boundary(label_lengths: Tensor, lengths: Tensor) -> Tensor:
    """``(B, 4)`` int64, as k2 wants it."""
    boundary = torch.zeros(lengths.size(0), 4, dtype=torch.int64, device=lengths.device)
    boundary[:, 2] = label_lengths
    boundary[:, 3] = lengths
    return boundary

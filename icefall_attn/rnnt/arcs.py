"""Log-probabilities of a lattice's arcs, from the simple joiner and from a real one."""

from typing import Tuple

import torch
from torch import Tensor

from icefall_attn.rnnt.config import LossConfig

BLANK_ID = 0


def smoothed_arcs(
    am: Tensor, lm: Tensor, labels: Tensor, label_lengths: Tensor, config: LossConfig
) -> Tuple[Tensor, Tensor]:
    """Arcs of the simple joiner, whose logits are ``am[t] + lm[u]`` (Kuang et al. 2022, sec. 3.1).

    With the share ``lm_scale`` the predictor's distribution alone and with ``am_scale`` the
    encoder's with the batch's mean predictor distribution is mixed in, in the log domain. No
    ``(B, T', U, V)`` tensor is made: the normaliser is a product of exponentials.

    Args:
      am: ``(B, T', V)`` float32.
      lm: ``(B, U + 1, V)`` float32.
      labels: ``(B, U)``, valid ids everywhere.
      label_lengths: ``(B,)``.
      config: scales and topology.

    Returns:
      px and py of `lattice`, before boundaries (see `close`): ``(B, U, T')``, ``(B, U + 1, T')``.
    """
    am_max, lm_max = am.detach().amax(2, keepdim=True), lm.detach().amax(
        2, keepdim=True
    )
    am_exp, lm_exp = (am - am_max).exp(), (lm - lm_max).exp()
    tiny = torch.finfo(am.dtype).tiny
    both = torch.matmul(lm_exp, am_exp.transpose(1, 2)) + tiny
    both = both.log() + lm_max + am_max.transpose(1, 2)  # (B, U + 1, T')
    lm_alone = lm_exp.sum(2, keepdim=True).log() + lm_max  # (B, U + 1, 1)

    index = labels.unsqueeze(2)
    lm_label = lm[:, :-1].gather(2, index)  # (B, U, 1)
    am_label = am.transpose(1, 2).gather(
        1, index.expand(-1, -1, am.size(1))
    )  # (B, U, T')
    am_blank, lm_blank = am[:, None, :, BLANK_ID], lm[:, :, BLANK_ID, None]
    rest = 1.0 - config.lm_scale - config.am_scale
    px = rest * (am_label + lm_label - both[:, :-1])
    py = rest * (am_blank + lm_blank - both)
    if config.lm_scale > 0:
        px = px + config.lm_scale * (lm_label - lm_alone[:, :-1])
        py = py + config.lm_scale * (lm_blank - lm_alone)
    if config.am_scale > 0:
        unigram = _mean_distribution(lm_exp, label_lengths) + tiny  # (V,)
        am_alone = torch.matmul(am_exp, unigram).log() + am_max.squeeze(2)  # (B, T')
        am_alone = am_alone.unsqueeze(1)
        px = px + config.am_scale * (
            am_label + unigram.log()[labels].unsqueeze(2) - am_alone
        )
        py = py + config.am_scale * (am_blank + unigram[BLANK_ID].log() - am_alone)
    return px, py


def _mean_distribution(lm_exp: Tensor, label_lengths: Tensor) -> Tensor:
    """The predictor's mean distribution ``(V,)`` over the valid positions of the batch.

    k2 takes the mean over padding too, which makes an utterance's loss depend on the others' lengths.
    """
    positions = torch.arange(lm_exp.size(1), device=lm_exp.device)
    valid = (positions <= label_lengths[:, None]).to(lm_exp.dtype)
    distribution = lm_exp / lm_exp.sum(2, keepdim=True)
    return torch.einsum("buv,bu->v", distribution, valid) / valid.sum()


def pruned_arcs(
    blank: Tensor, label: Tensor, ranges: Tensor, positions: int
) -> Tuple[Tensor, Tensor]:
    """Arcs of the kept cells in the whole lattice; -inf elsewhere.

    Args:
      blank: ``(B, T', R)`` log-probabilities of blank.
      label: ``(B, T', R)`` log-probabilities of each cell's next label.
      ranges: ``(B, T', R)`` the cells' numbers of labels.
      positions: U + 1.

    Returns:
      px ``(B, U, T')`` and py ``(B, U + 1, T')``.
    """
    empty = blank.new_full((*blank.shape[:2], positions), float("-inf"))
    px = empty.scatter(2, ranges, label)[:, :, :-1]
    py = empty.scatter(2, ranges, blank)
    return px.transpose(1, 2), py.transpose(1, 2)


def raise_gradient(px: Tensor, share: float) -> Tensor:
    """px itself, whose gradient is multiplied by 1 + share: FastEmit (Yu et al. 2021, eq. 12).

    For labels alone, therefore before `close` adds a blank to them.
    """
    return _RaisedGradient.apply(px, share) if share > 0 else px


class _RaisedGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, share):
        ctx.share = share
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return (1.0 + ctx.share) * grad, None


def close(
    px: Tensor, py: Tensor, lengths: Tensor, config: LossConfig
) -> Tuple[Tensor, Tensor]:
    """Applies topology and delay penalty to arcs ``(B, U, T')`` and ``(B, U + 1, T')``.

    * ``regular``: no label after the last frame; px gets a column of -inf there.
    * ``constrained``: a label also takes the blank of the next position on its frame.
    * A delay penalty p adds ``p ((T' - 1) / 2 - t)`` to labels, favouring early ones
      (Kang et al. 2022, "Delay-penalized transducer").
    """
    frames = torch.arange(py.size(2), device=px.device)
    if config.rnnt_type == "constrained":
        px = px + py[:, 1:]
    if config.delay_penalty > 0:
        middle = (lengths - 1).to(px.dtype)[:, None, None] / 2
        px = px + config.delay_penalty * (middle - frames)
    if config.rnnt_type == "regular":
        px = px.masked_fill(frames >= lengths[:, None, None], float("-inf"))
        px = torch.nn.functional.pad(px, (0, 1), value=float("-inf"))
    return px, py

"""The joiner's output layer and what the loss needs of it, without ever holding all logits."""

from typing import Tuple

import torch
from torch import Tensor

CHUNK = 2**21  # logits that are held at a time


def join_cells(
    encoder: Tensor,
    predictor: Tensor,
    weight: Tensor,
    bias: Tensor,
    labels: Tensor,
    ranges: Tensor,
    negligible: float = 0.0,
) -> Tuple[Tensor, Tensor]:
    """Log-probabilities of blank and of the next label in the kept cells.

    ``logits = W tanh(encoder[t] + predictor[u]) + b`` is computed, normalised and read in
    chunks; the backward pass computes a chunk again. Cells of which it needs little are left out
    there: with ``negligible = e``, those whose gradient is below e times the largest. What is lost is
    at most the sum of their gradients times the largest norm of a cell's Jacobian.

    Args:
      encoder: ``(B, T', J)`` projected encoder output, float32 or float64 like all the others.
      predictor: ``(B, U + 1, J)`` projected predictor output.
      weight: ``(V, J)`` of the output layer.
      bias: ``(V,)``.
      labels: ``(B, U)`` valid ids.
      ranges: ``(B, T', R)`` label positions kept at each frame.
      negligible: see above.

    Returns:
      Two ``(B, T', R)`` tensors: blank, next label (that of the last position is meaningless and
      must not be used).
    """
    return _JoinCells.apply(
        encoder, predictor, weight, bias, labels, ranges, negligible
    )


class _JoinCells(torch.autograd.Function):
    @staticmethod
    def forward(ctx, encoder, predictor, weight, bias, labels, ranges, negligible):
        frame, position, label = _cells(encoder, predictor, labels, ranges)
        enc, pred = encoder.flatten(0, 1), predictor.flatten(0, 1)
        count = frame.numel()
        blank_out = torch.empty(count, dtype=enc.dtype, device=enc.device)
        label_out, norm = torch.empty_like(blank_out), torch.empty_like(blank_out)
        for part in _chunks(count, weight.size(0)):
            hidden = torch.tanh(enc[frame[part]] + pred[position[part]])
            logits = torch.addmm(bias, hidden, weight.t())
            norm[part] = logits.logsumexp(1)
            blank_out[part] = logits[:, 0] - norm[part]
            label_out[part] = (
                logits.gather(1, label[part, None]).squeeze(1) - norm[part]
            )
        ctx.save_for_backward(encoder, predictor, weight, bias, labels, ranges, norm)
        ctx.negligible = negligible
        return blank_out.view(ranges.shape), label_out.view(ranges.shape)

    @staticmethod
    def backward(ctx, grad_blank, grad_label):
        encoder, predictor, weight, bias, labels, ranges, norm = ctx.saved_tensors
        frame, position, label = _cells(encoder, predictor, labels, ranges)
        enc, pred = encoder.flatten(0, 1), predictor.flatten(0, 1)
        grad_blank, grad_label = grad_blank.flatten(), grad_label.flatten()
        size = grad_blank.abs() + grad_label.abs()
        # written so that a gradient that is not a number leaves nothing out
        cells = (~(size <= ctx.negligible * size.max())).nonzero().squeeze(1)
        grad_enc, grad_pred = torch.zeros_like(enc), torch.zeros_like(pred)
        grad_weight, grad_bias = torch.zeros_like(weight), torch.zeros_like(bias)
        for part in _chunks(cells.numel(), weight.size(0)):
            cell = cells[part]
            at, after = frame[cell], position[cell]
            hidden = torch.tanh(enc[at] + pred[after])
            logits = torch.addmm(bias, hidden, weight.t())
            blank, other = grad_blank[cell], grad_label[cell]
            grad = logits.sub_(norm[cell, None]).exp_().mul_(-(blank + other)[:, None])
            grad[:, 0] += blank
            grad.scatter_add_(1, label[cell, None], other[:, None])
            grad_weight.addmm_(grad.t(), hidden)
            grad_bias += grad.sum(0)
            inner = (grad @ weight).mul_(1 - hidden * hidden)
            grad_enc.index_add_(0, at, inner)
            grad_pred.index_add_(0, after, inner)
        return (
            grad_enc.view_as(encoder),
            grad_pred.view_as(predictor),
            grad_weight,
            grad_bias,
            None,
            None,
            None,
        )


def _cells(encoder: Tensor, predictor: Tensor, labels: Tensor, ranges: Tensor):
    """For every kept cell: its row among all frames, among all positions, and its next label."""
    batch, frames, width = ranges.shape
    utterance = torch.arange(batch, device=ranges.device)[:, None, None]
    frame = torch.arange(batch * frames, device=ranges.device).repeat_interleave(width)
    position = (utterance * predictor.size(1) + ranges).flatten()
    following = torch.nn.functional.pad(
        labels, (0, 1)
    )  # the last position has no next label
    label = following[utterance, ranges].flatten()
    return frame, position, label


def _chunks(count: int, vocab: int):
    step = max(1, CHUNK // vocab)
    return [slice(start, start + step) for start in range(0, count, step)]

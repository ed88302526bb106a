"""The sum over all alignments of a transducer lattice, and how probable each arc is.

A lattice is given by the log-probabilities of its arcs:

* ``px[b, s, t]``: label s + 1 is emitted at frame t after s labels;
* ``py[b, s, t]``: blank is emitted at frame t after s labels.

For the ``regular`` topology px is ``(B, U, T' + 1)``, its column T' being -inf: a label takes no
time, and the last arc is a blank. For ``modified`` and ``constrained`` it is ``(B, U, T')``: a label
also moves on to the next frame. py is ``(B, U + 1, T')``.
"""

from functools import lru_cache
from typing import Tuple

import torch
from torch import Tensor
from torch.nn.functional import threshold_

from icefall_attn.errors import UserError
from icefall_attn.rnnt.recursion import FLOOR, by_labels, by_steps

# Logarithm of an occupation that counts as 0: float32 has no normal number for it, and what is not
# normal takes a processor ten times as long.
NEGLIGIBLE = -87.0


@lru_cache(maxsize=None)
def why_no_k2(device_type: str = "cpu") -> str:
    """The reason why k2 cannot be used on a kind of device; empty if it can."""
    try:
        import k2
    except (
        Exception
    ) as error:  # built for another torch, k2 raises errors of its own kinds
        return f"k2 cannot be imported ({' '.join(str(error).split()) or type(error).__name__})"
    if device_type == "cuda" and not k2.with_cuda:
        return "this k2 was built without CUDA"
    return ""


def choose_backend(name: str, device_type: str = "cpu") -> str:
    """``auto`` is k2 where it can be used, otherwise torch.

    Raises:
      UserError: for k2 where it cannot be used.
    """
    if name == "torch":
        return name
    reason = why_no_k2(device_type)
    if not reason:
        return "k2"
    if name == "k2":
        raise UserError(f"loss.backend=k2 but {reason}; use loss.backend=torch")
    return "torch"


def total_score(
    px: Tensor,
    py: Tensor,
    label_lengths: Tensor,
    lengths: Tensor,
    backend: str,
) -> Tensor:
    """Log of the summed probability of all alignments, ``(B,)``, differentiable.

    Args:
      px: label arcs, see the module; float32 or float64.
      py: blank arcs.
      label_lengths: ``(B,)`` labels of each utterance, 0 allowed.
      lengths: ``(B,)`` frames of each utterance.
      backend: ``k2`` or ``torch``. Torch works in float64 inside.
    """
    return score_and_occupation(px, py, label_lengths, lengths, backend)[0]


def score_and_occupation(
    px: Tensor, py: Tensor, label_lengths: Tensor, lengths: Tensor, backend: str
) -> Tuple[Tensor, Tensor, Tensor]:
    """`total_score`, differentiable, and the `occupation` that it computed on the way."""
    total, px_grad, py_grad = occupation(px, py, label_lengths, lengths, backend)
    return _Known.apply(total, px, py, px_grad, py_grad), px_grad, py_grad


def occupation(
    px: Tensor, py: Tensor, label_lengths: Tensor, lengths: Tensor, backend: str
) -> Tuple[Tensor, Tensor, Tensor]:
    """The total score and the probability of each arc being on the alignment.

    Returns:
      ``(B,)``, and tensors like px and py, 0 outside of the utterances.
    """
    px, py = px.detach(), py.detach()
    if backend == "k2":
        return _k2_occupation(px, py, label_lengths, lengths)
    return _torch_occupation(px, py, label_lengths, lengths)


class _Known(torch.autograd.Function):
    """A value ``(B,)`` whose gradients are known already."""

    @staticmethod
    def forward(ctx, value, px, py, px_grad, py_grad):
        ctx.save_for_backward(px_grad, py_grad)
        return value.clone()

    @staticmethod
    def backward(ctx, grad):
        px_grad, py_grad = ctx.saved_tensors
        grad = grad[:, None, None]
        return None, px_grad * grad, py_grad * grad, None, None


def _k2_occupation(px, py, label_lengths, lengths):
    import k2

    if px.size(1) == 0:  # k2 wants room for a label
        px = px.new_full((px.size(0), 1, px.size(2)), float("-inf"))
        py = torch.nn.functional.pad(py, (0, 0, 0, 1), value=float("-inf"))
        total, px_grad, py_grad = _k2_occupation(px, py, label_lengths, lengths)
        return total, px_grad[:, :0], py_grad[:, :1]
    boundary = torch.zeros(px.size(0), 4, dtype=torch.int64, device=px.device)
    boundary[:, 2] = label_lengths
    boundary[:, 3] = lengths
    total, grads = k2.mutual_information_recursion(px, py, boundary, return_grad=True)
    return total, *grads


def _torch_occupation(px, py, label_lengths, lengths):
    columns = lengths + 1 if px.size(2) > py.size(2) else lengths
    recursion = by_steps if px.device.type == "cpu" else by_labels
    total, *logarithms = recursion(
        _fence(px, label_lengths, columns),
        _fence(py, label_lengths + 1, lengths),
        label_lengths,
        lengths,
    )
    total = total.masked_fill(total < 0.5 * FLOOR, float("-inf")).to(px.dtype)
    px_grad, py_grad = torch.empty_like(px), torch.empty_like(py)
    for grad, logarithm in zip((px_grad, py_grad), logarithms):
        threshold_(grad.copy_(logarithm), NEGLIGIBLE, FLOOR).exp_()
    return total, px_grad, py_grad


def _fence(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """``(B, M, N)`` with `FLOOR` for -inf and outside of the utterances."""
    i = torch.arange(x.size(1), device=x.device)[:, None]
    j = torch.arange(x.size(2), device=x.device)
    inside = (i < rows[:, None, None]) & (j < columns[:, None, None])
    return x.masked_fill(~inside, FLOOR).clamp_(min=FLOOR)

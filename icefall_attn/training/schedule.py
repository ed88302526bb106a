"""Optimiser and learning rate."""

import math
from dataclasses import dataclass
from typing import List, Tuple

import torch
from torch import Tensor, nn

from icefall_attn.errors import UserError


@dataclass
class OptimConfig:
    """AdamW and its schedule.

    Attributes:
      schedule: ``noam`` (``lr min(s / w, sqrt(w / s))``, peak at step w) or ``cosine`` (linear to
        the peak, then half a cosine to 0 at ``train.max_steps``).
      lr: the peak.
      warm_steps: steps w to the peak.
      weight_decay: of weights; parameters of one dimension (biases, norms) and those that are
        marked ``no_weight_decay`` have none.
      beta1: decay of the gradients' mean.
      beta2: decay of the squared gradients' mean.
      eps: added to the root of the latter.
      clip_norm: largest norm of the whole gradient; 0 does not clip.
    """

    schedule: str = "noam"
    lr: float = 1e-3
    warm_steps: int = 5000
    weight_decay: float = 1e-2
    beta1: float = 0.9
    beta2: float = 0.98
    eps: float = 1e-9
    clip_norm: float = 5.0

    def __post_init__(self):
        if self.schedule not in ("noam", "cosine"):
            raise ValueError(
                f"optim.schedule must be 'noam' or 'cosine', not {self.schedule!r}"
            )
        if self.warm_steps < 1:
            raise ValueError(
                f"optim.warm_steps must be at least 1, not {self.warm_steps}"
            )
        if not self.lr > 0 or not self.eps > 0:
            raise ValueError(
                f"optim.lr and optim.eps must be above 0, not {self.lr} and {self.eps}"
            )
        for name in ("weight_decay", "clip_norm"):
            if getattr(self, name) < 0:
                raise ValueError(
                    f"optim.{name} must not be negative, but is {getattr(self, name)}"
                )
        for name in ("beta1", "beta2"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ValueError(
                    f"optim.{name} must be from 0 to below 1, not {getattr(self, name)}"
                )

    def rate(self, step: int, max_steps: int) -> float:
        """The learning rate of ``step``, counted from 1."""
        if self.schedule == "noam":
            return self.lr * min(
                step / self.warm_steps, math.sqrt(self.warm_steps / step)
            )
        if max_steps <= self.warm_steps:
            raise UserError(
                f"optim.schedule=cosine needs train.max_steps above optim.warm_steps="
                f"{self.warm_steps}, not {max_steps}"
            )
        if step <= self.warm_steps:
            return self.lr * step / self.warm_steps
        progress = min((step - self.warm_steps) / (max_steps - self.warm_steps), 1.0)
        return self.lr * 0.5 * (1.0 + math.cos(math.pi * progress))


PIECE = 2**18  # values


class FlatOptimizer:
    """AdamW over flat vectors, of parameters with weight decay and without.

    The model's parameters and their gradients become views of the vectors. A step, a norm or a
    sum over ranks is then a handful of operations on a vector in place of several per
    parameter; on a CPU this takes a third of the time. A vector is at most `PIECE` long, so
    that what AdamW computes in between stays in the processor's caches.

    Args:
      model: its parameters are re-laid; it must already be on its device.
      config: the options.
    """

    def __init__(self, model: nn.Module, config: OptimConfig):
        self.config = config
        weights, others = [], []
        for parameter in model.parameters():
            decays = parameter.dim() > 1 and not hasattr(parameter, "no_weight_decay")
            (weights if decays else others).append(parameter)
        decaying, grad = _flatten(weights)
        staying, other_grad = _flatten(others)
        groups = [
            {"params": decaying, "weight_decay": config.weight_decay},
            {"params": staying, "weight_decay": 0.0},
        ]
        self.vectors: List[Tensor] = decaying + staying
        self.grads: List[Tensor] = [grad, other_grad]  # those of all vectors
        self.adamw = torch.optim.AdamW(
            groups,
            lr=config.lr,
            betas=(config.beta1, config.beta2),
            eps=config.eps,
            foreach=False,
        )

    def zero_grad(self) -> None:
        """Sets all gradients to 0."""
        for grad in self.grads:
            grad.zero_()

    def scale_grad(self, factor: float) -> None:
        """Multiplies all gradients."""
        for grad in self.grads:
            grad.mul_(factor)

    def grad_norm(self) -> Tensor:
        """The L2 norm of the whole gradient, a scalar tensor."""
        return torch.stack([vector.grad.norm() for vector in self.vectors]).norm()

    def step(self, rate: float, norm: float) -> None:
        """One update with learning rate ``rate``; ``norm`` is `grad_norm`'s value."""
        clip = self.config.clip_norm
        if clip > 0 and norm > clip:
            for vector in self.vectors:
                vector.grad.mul_(clip / norm)
        for group in self.adamw.param_groups:
            group["lr"] = rate
        self.adamw.step()

    def state_dict(self) -> dict:
        """What the updates so far left behind: tensors only."""
        states = [self.adamw.state.get(vector, {}) for vector in self.vectors]
        return {
            "states": [{k: torch.as_tensor(v) for k, v in s.items()} for s in states]
        }

    def load_state_dict(self, state: dict) -> None:
        """The inverse of `state_dict`; learning rate and the like come from the config."""
        for vector, values in zip(self.vectors, state["states"]):
            self.adamw.state[vector] = {
                k: v.clone() if k == "step" else v.to(vector.device, copy=True)
                for k, v in values.items()
            }


def _flatten(parameters: List[nn.Parameter]) -> Tuple[List[Tensor], Tensor]:
    """Makes the parameters and their gradients views of one vector each.

    Returns:
      The parameters' vector in pieces, and the gradients' whole.
    """
    values = torch.cat([p.detach().flatten() for p in parameters])
    grads = torch.zeros_like(values)
    start = 0
    for parameter in parameters:
        end = start + parameter.numel()
        parameter.data = values[start:end].view_as(parameter)
        parameter.grad = grads[start:end].view_as(parameter)
        start = end
    pieces = []
    for piece, grad in zip(values.split(PIECE), grads.split(PIECE)):
        piece = piece.detach().requires_grad_()
        piece.grad = grad
        pieces.append(piece)
    return pieces, grads

"""Dropout that a training run can hold back for its first steps."""

import torch.nn.functional as F
from torch import Tensor, nn


class Dropout(nn.Dropout):
    """`torch.nn.Dropout` with a switch.

    A small corpus starts faster when nothing is dropped before the loss has left its first
    plateau; `set_active` turns every such layer of a model on or off.
    """

    active: bool

    def __init__(self, p: float):
        super().__init__(p)
        self.active = True

    def forward(self, x: Tensor) -> Tensor:
        if self.training and self.active and self.p > 0.0:
            return F.dropout(x, self.p, True)
        return x


def set_active(model: nn.Module, active: bool) -> None:
    """Turns the regularisation of all `Dropout` (and SpecAugment) layers of ``model`` on or off."""
    for module in model.modules():
        if hasattr(module, "active"):
            module.active = active

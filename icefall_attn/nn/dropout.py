"""Dropout that a training run can hold back, with cheap masks on a CPU."""

from typing import Dict

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Dropout(nn.Dropout):
    """`torch.nn.Dropout` with a switch.

    A small corpus starts faster when nothing is dropped before the loss has left its first
    plateau; `begin_step` turns every such layer of a model on or off.
    """

    active: bool

    def __init__(self, p: float):
        if not 0.0 <= p < 1.0:
            raise ValueError(f"dropout must be at least 0 and below 1, not {p}")
        super().__init__(p)
        self.active = True

    def drops(self) -> bool:
        """Whether anything is dropped at present."""
        return self.training and self.active and self.p > 0.0

    def forward(self, x: Tensor) -> Tensor:
        if not self.drops():
            return x
        if torch.jit.is_scripting() or x.device.type != "cpu":
            return F.dropout(x, self.p, True)
        return self._masked(x)

    @torch.jit.unused
    def _masked(self, x: Tensor) -> Tensor:
        if x.numel() > MaskPool.SIZE // 2:
            return F.dropout(x, self.p, True)
        return x * _pool(self.p).take(x.numel()).view(x.shape).to(x.dtype)


def begin_step(model: nn.Module, regularise: bool) -> None:
    """Before each step: turns `Dropout` and SpecAugment on or off and makes new masks due."""
    for module in model.modules():
        if hasattr(module, "active"):
            module.active = regularise
    for pool in _POOLS.values():
        pool.renew()


class MaskPool:
    """Masks of 0 and 1 / (1 - p), cut from one long random vector.

    Drawing random numbers costs a CPU several times as much as applying them, and storing each
    layer's mask for the backward pass costs memory. Here a step draws as many as its layers
    use, but at most `SIZE`; past that, masks start at random places of what was drawn. A mask is
    a view, so none is stored twice. All numbers come from torch's generator: a resumed run goes on
    with the same masks.
    """

    SIZE = 2**22

    def __init__(self, p: float):
        self.values = torch.empty(self.SIZE)
        self.drop_below = round(p * 2**16) - 2**15
        self.scale = 2**16 / (2**15 - self.drop_below)
        self.renew()

    def renew(self) -> None:
        """The masks handed out so far are no longer in use (their backward pass is over)."""
        self.position = self.drawn = 0

    def take(self, count: int) -> Tensor:
        """A mask of ``count`` values, at most `SIZE`."""
        if self.position + count > self.SIZE:
            self.position = int(torch.randint(self.SIZE - count + 1, ()))
        start, end = self.position, self.position + count
        if end > self.drawn:
            # `data`: masks in use are views of the same vector, but of other places in it
            new = self.values.data[self.drawn : end]
            new.copy_(random_bits(new.numel()) >= self.drop_below).mul_(self.scale)
            self.drawn = end
        self.position = end
        return self.values[start:end]


def random_bits(count: int) -> Tensor:
    """``count`` uniform numbers of 16 bits (int16), from torch's generator.

    Four are cut from each draw: on a CPU a draw costs more than what is done with it.
    """
    words = torch.empty((count + 3) // 4, dtype=torch.int64)
    return words.random_(-(2**63), None).view(torch.int16)[:count]


_POOLS: Dict[float, MaskPool] = {}


def _pool(p: float) -> MaskPool:
    if p not in _POOLS:
        _POOLS[p] = MaskPool(p)
    return _POOLS[p]

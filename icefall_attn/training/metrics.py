"""Sums over the steps between two reports; losses stay on their device until they are read."""

from typing import Dict, Iterable

import torch
from torch import Tensor

from icefall_attn.training.group import Group
from icefall_attn.training.objective import Terms


class Metrics:
    """Adds up losses and counts; `take` returns them and starts again."""

    def __init__(self) -> None:
        self._sums: Dict[str, Tensor] = {}
        self._counts: Dict[str, float] = {}

    def add_losses(self, terms: Terms) -> None:
        """Adds a batch's losses, without waiting for them, and its frames."""
        for name, value in terms._asdict().items():
            if name != "frames" and value is not None:
                value = value.detach()
                self._sums[name] = (
                    self._sums[name] + value if name in self._sums else value
                )
        self.count(frames=terms.frames)

    def count(self, **values: float) -> None:
        """Adds numbers that the host knows."""
        for name, value in values.items():
            self._counts[name] = self._counts.get(name, 0.0) + value

    def take(
        self, group: Group = Group()
    ) -> "tuple[Dict[str, float], Dict[str, float]]":
        """Losses per encoder frame, read with one synchronisation, and counts.

        Of several processes all must call it: losses and counts are those of all, and what all go
        through alike, time and steps, is a mean.
        """
        names, counts = list(self._sums), self._counts
        stacked = [value.float() for value in self._sums.values()]
        values = torch.stack(stacked).tolist() if stacked else []
        self._sums, self._counts = {}, {}
        parts = group.gather((dict(zip(names, values)), counts))
        sums, counts = (_added(each) for each in zip(*parts))
        for name in ("seconds", "steps", "waited", "grad_norm"):
            if name in counts:
                counts[name] /= group.size
        frames = max(counts.get("frames", 0.0), 1.0)
        return {name: value / frames for name, value in sums.items()}, counts


def _added(parts: Iterable[Dict[str, float]]) -> Dict[str, float]:
    total: Dict[str, float] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total.get(name, 0.0) + value
    return total

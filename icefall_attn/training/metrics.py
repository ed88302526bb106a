"""Sums over the steps between two reports; losses stay on their device until they are read."""

from typing import Dict

import torch
from torch import Tensor

from icefall_attn.training.objective import Terms


class Metrics:
    """Adds up losses and counts; `take` returns them and starts again."""

    def __init__(self) -> None:
        self._sums: Dict[str, Tensor] = {}
        self._counts: Dict[str, float] = {}

    def add_losses(self, terms: Terms) -> None:
        """Adds a batch's losses, without waiting for them, and its frames."""
        for name in ("total", "simple", "pruned", "ctc"):
            value = getattr(terms, name)
            if value is not None:
                value = value.detach()
                self._sums[name] = (
                    self._sums[name] + value if name in self._sums else value
                )
        self.count(frames=terms.frames)

    def count(self, **values: float) -> None:
        """Adds numbers that the host knows."""
        for name, value in values.items():
            self._counts[name] = self._counts.get(name, 0.0) + value

    def take(self) -> "tuple[Dict[str, float], Dict[str, float]]":
        """Losses per encoder frame, read with one synchronisation, and counts."""
        sums, counts = self._sums, self._counts
        self._sums, self._counts = {}, {}
        frames = max(counts.get("frames", 0.0), 1.0)
        values = (
            torch.stack([v.float() for v in sums.values()]).tolist() if sums else []
        )
        return {name: value / frames for name, value in zip(sums, values)}, counts

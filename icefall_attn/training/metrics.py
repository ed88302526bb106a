"""Sums of losses that stay on the device until they are read."""

from typing import Dict, List

import torch
from torch import Tensor


class Metrics:
    """Adds up named values; `means` divides by the frames seen and starts again."""

    def __init__(self) -> None:
        self.sums: Dict[str, Tensor] = {}
        self.counts: Dict[str, float] = {}

    def add(self, **values: Tensor) -> None:
        """Adds tensors that stay where they are."""
        for name, value in values.items():
            value = value.detach()
            self.sums[name] = self.sums[name] + value if name in self.sums else value

    def count(self, **values: float) -> None:
        """Adds numbers that the host knows."""
        for name, value in values.items():
            self.counts[name] = self.counts.get(name, 0.0) + value

    def means(self) -> Dict[str, float]:
        """Every sum of tensors over the frames, read with one synchronisation; then empties."""
        frames = max(self.counts.get("frames", 0.0), 1.0)
        names: List[str] = list(self.sums)
        values = torch.stack([self.sums[n].float() for n in names]).tolist() if names else []
        result = {name: value / frames for name, value in zip(names, values)}
        self.sums = {}
        return result

    def take_counts(self) -> Dict[str, float]:
        """The counts, which start again."""
        counts, self.counts = self.counts, {}
        return counts

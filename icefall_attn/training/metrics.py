"""Sums over the steps between two reports; losses stay on their device until they are read."""

from typing import Dict, Iterable, List, NamedTuple, Optional

import torch
from torch import Tensor

from icefall_attn.training.group import Group
from icefall_attn.training.objective import Terms


class Measured(NamedTuple):
    """Some steps of a training.

    Attributes:
      losses: per encoder frame, by name.
      counts: sums over the processes, or means of what they go through alike.
      parts: seconds of the parts of a step, by name.
      speeds: seconds of audio that each process gets through in a second.
    """

    losses: Dict[str, float]
    counts: Dict[str, float]
    parts: Dict[str, float]
    speeds: List[float]


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
        self, parts: Optional[Dict[str, float]] = None, group: Group = Group()
    ) -> "Measured":
        """What was added up, and starts again; losses are read with one synchronisation.

        Of several processes all must call it: losses and counts are those of all, and what all go
        through alike, time and steps, is a mean.

        Args:
          parts: seconds by name, see `Stopwatch`.
        """
        names, counts = list(self._sums), self._counts
        stacked = [value.float() for value in self._sums.values()]
        values = torch.stack(stacked).tolist() if stacked else []
        self._sums, self._counts = {}, {}
        told = group.gather((dict(zip(names, values)), counts, parts or {}))
        sums, counts, spent = (_added(each) for each in zip(*told))
        for name in ("seconds", "steps", "waited", "grad_norm"):
            if name in counts:
                counts[name] /= group.size
        frames = max(counts.get("frames", 0.0), 1.0)
        return Measured(
            {name: value / frames for name, value in sums.items()},
            counts,
            {name: value / group.size for name, value in spent.items()},
            [_speed(own, seconds) for _, own, seconds in told],
        )


def _speed(counts: Dict[str, float], parts: Dict[str, float]) -> float:
    """Audio per second of one process, without what it waits for the others."""
    busy = counts.get("seconds", 0.0) - parts.get("exchange", 0.0)
    return counts.get("audio", 0.0) / busy if busy > 0 else 0.0


def _added(parts: Iterable[Dict[str, float]]) -> Dict[str, float]:
    total: Dict[str, float] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total.get(name, 0.0) + value
    return total

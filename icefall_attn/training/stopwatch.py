"""Where the time of a step goes, without waiting for a GPU at each step."""

import time
from contextlib import contextmanager
from typing import Dict, Iterator, List, Tuple

import torch


class Stopwatch:
    """Adds up the seconds of parts of a step by their names.

    On a GPU, events mark where a part begins and ends among what it has to do; they are read by `take`,
    when the numbers are wanted anyway.

    Args:
      device: that computes.
    """

    def __init__(self, device: torch.device):
        self.device = device
        self._seconds: Dict[str, float] = {}
        self._events: List[Tuple[str, torch.cuda.Event, torch.cuda.Event]] = []

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """The block belongs to part ``name``."""
        if self.device.type != "cuda":
            begin = time.perf_counter()
            try:
                yield
            finally:
                self._add(name, time.perf_counter() - begin)
            return
        begins, ends = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begins.record()
        try:
            yield
        finally:
            ends.record()
            self._events.append((name, begins, ends))

    def take(self) -> Dict[str, float]:
        """The sums since the last call."""
        for name, begins, ends in self._events:
            ends.synchronize()
            self._add(name, begins.elapsed_time(ends) / 1000.0)
        seconds, self._seconds, self._events = self._seconds, {}, []
        return seconds

    def _add(self, name: str, seconds: float) -> None:
        self._seconds[name] = self._seconds.get(name, 0.0) + seconds

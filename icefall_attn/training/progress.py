"""Where a training is."""

import logging
import time
from dataclasses import dataclass, field
from typing import Callable, List, Tuple


@dataclass
class Progress:
    """Where a run is: all that is needed, with weights and random states, to go on exactly.

    Attributes:
      epoch: the current epoch, from 1.
      batches: batches of the epoch that are done, of each process.
      step: optimiser steps done.
      seconds: time spent training, validation included.
      cpu_seconds: processor time of that: what other jobs on the machine do not lengthen.
      best_valid_loss: the lowest so far.
      dropped: utterances left out.
      skipped_steps: steps left out because the gradient was not finite.
      memory_gib: peak memory, of the first process or of its GPU.
      machine: the GPU or the processor that trains, of the first process.
      processes: that train together.
      earlier: parts of the epoch that other numbers of processes have done: how many, and the
        batches of each.
    """

    epoch: int = 1
    batches: int = 0
    step: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    best_valid_loss: float = float("inf")
    dropped: int = 0
    skipped_steps: int = 0
    memory_gib: float = 0.0
    machine: str = ""
    processes: int = 1
    earlier: List[List[int]] = field(default_factory=list)

    def parts_before(self) -> Tuple[Tuple[int, int], ...]:
        """`earlier`, as a `Share` wants it."""
        return tuple((size, turns) for size, turns in self.earlier)

    def go_on_with(self, processes: int) -> None:
        """Takes note that there may be another number of processes from here on."""
        if processes == self.processes:
            return
        logging.warning(
            "this run was of %d processes and goes on with %d: a step is of %d batches times"
            " train.accumulate from here on, what is left of epoch %d is dealt anew, and random"
            " numbers are others than without the change; no utterance is left out or taken twice",
            *(self.processes, processes, processes, self.epoch),
        )
        if self.batches > 0:
            self.earlier.append([self.processes, self.batches])
        self.batches, self.processes = 0, processes

    def end_of_epoch(self) -> None:
        """Forgets what of the epoch was done."""
        self.batches, self.earlier = 0, []

    def clock(self) -> Callable[[], None]:
        """Goes on counting time; each call of what is returned brings it up to date."""
        wall = time.monotonic() - self.seconds
        cpu = time.process_time() - self.cpu_seconds

        def read() -> None:
            self.seconds = time.monotonic() - wall
            self.cpu_seconds = time.process_time() - cpu

        return read

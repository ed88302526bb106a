"""Signals that ask a training to stop: it ends its step and writes a checkpoint first."""

import signal
import time
from typing import Any, Dict, List, Optional, Sequence

from icefall_attn.errors import RESUMABLE

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


class Interrupted(Exception):
    """A training was asked to stop, and did so with all that it takes to go on.

    Attributes:
      name: of the signal.
      code: the exit code that a program shall end with: 130 for the user's own Ctrl-C, otherwise 75.
    """

    def __init__(self, number: int):
        self.name = signal.Signals(number).name
        self.code = 130 if number == signal.SIGINT else RESUMABLE
        super().__init__(number)

    def __str__(self) -> str:
        return f"interrupted by {self.name}"


class Interruption:
    """Notes the signals that arrive within its block; a second Ctrl-C ends the process at once."""

    def __init__(self) -> None:
        self._arrived: Dict[int, float] = {}
        self._before: Dict[int, Any] = {}

    def __enter__(self) -> "Interruption":
        for number in SIGNALS:
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        # One process may be told to end because another has: it is about to.
        if isinstance(error, Interrupted):
            return
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: Any) -> None:
        # One Ctrl-C may come from the terminal and from a launcher.
        before = self._arrived.setdefault(number, time.monotonic())
        if number == signal.SIGINT and time.monotonic() - before > 1.0:
            raise KeyboardInterrupt

    def votes(self) -> List[int]:
        """1 for each of `SIGNALS` that has arrived here, 0 for the others."""
        return [int(number in self._arrived) for number in SIGNALS]


def decide(votes: Sequence[float]) -> Optional[Interrupted]:
    """What follows from the sums of all processes' votes."""
    for number, count in zip(SIGNALS, votes):
        if count > 0:
            return Interrupted(number)
    return None

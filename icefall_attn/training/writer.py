"""Checkpoints written while the training goes on."""

import logging
import threading
from pathlib import Path
from typing import Any, Callable, Dict, Optional

from torch import Tensor

from icefall_attn.training.checkpoint import save_checkpoint


class CheckpointWriter:
    """Writes one checkpoint at a time, in the background, from a copy of its tensors."""

    def __init__(self) -> None:
        self._thread: Optional[threading.Thread] = None
        self._error: Optional[BaseException] = None

    def write(
        self,
        path: Path,
        values: Dict[str, Any],
        then: Callable[[], None],
        essential: bool = True,
    ) -> None:
        """Copies the values and returns; waits first for what is still being written.

        Args:
          path: the checkpoint.
          values: see `save_checkpoint`.
          then: called when it is whole: gives it its other names.
          essential: whether a disk that is full ends the training; otherwise it is logged, and the
            training goes on to its next checkpoint.
        """
        self.wait()
        copy = _copied(values)
        self._thread = threading.Thread(
            target=self._work, args=(path, copy, then, essential), daemon=True
        )
        self._thread.start()

    def wait(self) -> None:
        """Returns when all is written.

        Raises:
          Exception: what kept an essential checkpoint from being written.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _work(
        self,
        path: Path,
        values: Dict[str, Any],
        then: Callable[[], None],
        essential: bool,
    ) -> None:
        try:
            save_checkpoint(path, values)
            then()
        except OSError as error:
            if essential:
                self._error = error
                return
            reason = error.strerror or error
            logging.warning("%s was not written: %s; training goes on", path, reason)
        except BaseException as error:  # to be raised where somebody waits
            self._error = error


def _copied(value: Any) -> Any:
    """The value with copies, on the CPU, of the tensors in it."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {name: _copied(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_copied(each) for each in value]
    return value

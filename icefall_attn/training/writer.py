"""Checkpoints written while the training goes on."""

import logging
import threading
from pathlib import Path
from typing import Any, Callable, Dict, Optional, Tuple

import torch
from torch import Tensor

from icefall_attn.training.checkpoint import save_checkpoint


class CheckpointWriter:
    """Writes one checkpoint at a time, in the background, from a copy of its tensors."""

    def __init__(self) -> None:
        self._snapshot = Snapshot()
        self._thread: Optional[threading.Thread] = None
        self._error: Optional[BaseException] = None

    def prepare(self, values: Dict[str, Any]) -> None:
        """Makes room, in the background, for the copy of the first checkpoint, which will be of such values."""
        self._start(self._snapshot.reserve, values)

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
        copy = self._snapshot.take(values)
        self._start(self._work, path, copy, then, essential)

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

    def _start(self, work: Callable[..., None], *arguments: Any) -> None:
        self._thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._thread.start()

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


class Snapshot:
    """Copies of values in memory that is kept for the next copy.

    Fresh memory costs several times as much as copying into it: the system fills each page with zeros when
    it is first touched.
    """

    def __init__(self) -> None:
        self._buffers: Dict[Tuple[Any, ...], Tensor] = {}

    def reserve(self, value: Any) -> None:
        """Has the memory ready for a copy of such values."""
        self._walk(value, (), lambda tensor, buffer: buffer.zero_())

    def take(self, value: Any) -> Any:
        """The value with copies, on the CPU, of the tensors in it; the next call overwrites them."""
        return self._walk(value, (), lambda tensor, buffer: buffer.copy_(tensor))

    def _walk(
        self,
        value: Any,
        place: Tuple[Any, ...],
        fill: Callable[[Tensor, Tensor], Tensor],
    ) -> Any:
        if isinstance(value, Tensor):
            return fill(value.detach(), self._buffer(value, place))
        if isinstance(value, dict):
            return {k: self._walk(v, (*place, k), fill) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._walk(v, (*place, i), fill) for i, v in enumerate(value)]
        return value

    def _buffer(self, value: Tensor, place: Tuple[Any, ...]) -> Tensor:
        buffer = self._buffers.get(place)
        if buffer is None or buffer.shape != value.shape or buffer.dtype != value.dtype:
            buffer = torch.empty(
                value.shape, dtype=value.dtype, pin_memory=value.is_cuda
            )
            self._buffers[place] = buffer
        return buffer

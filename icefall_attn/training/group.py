"""The processes of one training, and what they tell each other."""

import os
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Callable, Iterator, List

import torch
import torch.distributed as dist
from torch import Tensor

from icefall_attn.data.sampling import Share
from icefall_attn.errors import UserError

VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # torchrun's
TIMEOUT = timedelta(minutes=30)  # for all to arrive, longest while one draws pictures


class PeerLost(Exception):
    """Another process of the training has ended: what happened is its own to tell."""


class Group:
    """Processes that train one model together. A single one has nobody to talk to.

    Whatever they tell each other, all must call the same methods in the same order. A method raises
    `PeerLost` if another process is gone.

    Attributes:
      rank: the number of this process, from 0.
      size: how many there are.
    """

    def __init__(self, rank: int = 0, size: int = 1):
        self.rank, self.size = rank, size

    @property
    def leads(self) -> bool:
        """Whether this process writes checkpoints and tells the user what happens."""
        return self.rank == 0

    def share(self, **done: Any) -> Share:
        """This process's part of an epoch; see `Share` for what may be done of it."""
        return Share(self.rank, self.size, **done)

    def add(self, tensors: List[Tensor]) -> None:
        """Puts the sums over all processes in the tensors' places."""
        for tensor in tensors:
            self._talk(lambda: dist.all_reduce(tensor))

    def gather(self, value: Any) -> List[Any]:
        """The values, which are plain ones, of all processes."""
        values = [value] * self.size
        self._talk(lambda: dist.all_gather_object(values, value))
        return values

    def told(self, value: Any) -> Any:
        """The first process's value, a plain one."""
        return self.gather(value)[0]

    def take_over(self, tensors: List[Tensor]) -> None:
        """Puts those of the first process in the tensors' places."""
        for tensor in tensors:
            self._talk(lambda: dist.broadcast(tensor, src=0))

    def _talk(self, say: Callable[[], Any]) -> None:
        if self.size == 1:
            return
        try:
            say()
        except RuntimeError as error:
            raise PeerLost(str(error)) from error


@contextmanager
def joined_group(device: torch.device) -> Iterator[Group]:
    """The group that torchrun's environment variables describe; without them a group of one.

    Args:
      device: where the model is; a GPU talks by NCCL, a CPU by Gloo.

    Raises:
      UserError: some of the variables are missing or cannot be understood, or nobody answers.
    """
    if "RANK" not in os.environ and "WORLD_SIZE" not in os.environ:
        yield Group()
        return
    missing = [name for name in VARIABLES if name not in os.environ]
    if missing:
        raise UserError(
            f"{' and '.join(missing)} must be set where RANK or WORLD_SIZE is; start the training"
            " with train.sh --world-size N or torchrun"
        )
    place = "process {RANK} of {WORLD_SIZE} at {MASTER_ADDR}:{MASTER_PORT}".format(
        **os.environ
    )
    try:
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        if size > 1:
            backend = "nccl" if device.type == "cuda" else "gloo"
            if device.type == "cuda":
                torch.cuda.set_device(device)  # where plain values are gathered, too
            dist.init_process_group(
                backend, rank=rank, world_size=size, timeout=TIMEOUT
            )
    except (ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{place} cannot join the others: {reason}") from None
    try:
        yield Group(rank, size)
    finally:
        if size > 1:
            dist.destroy_process_group()

"""Where a model runs."""

import logging
import os
import resource
from pathlib import Path

import torch

from icefall_attn.environment import describe_cpu
from icefall_attn.errors import UserError


def choose_device(name: str) -> torch.device:
    """``auto`` is the GPU if there is one that this torch can use.

    Of several processes on a machine, each takes for ``auto`` and ``cuda`` the GPU of its number
    there (torchrun's LOCAL_RANK).

    Raises:
      UserError: the named device cannot be used here.
    """
    gpu = f"cuda:{os.environ['LOCAL_RANK']}" if "LOCAL_RANK" in os.environ else "cuda"
    if name == "cuda":
        name = gpu
    if name == "auto":
        if not torch.cuda.is_available():
            return torch.device("cpu")
        try:
            return _tried(gpu)
        except UserError as error:
            logging.warning("%s; using the CPU", error)
            return torch.device("cpu")
    return _tried(name)


def _tried(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.ones(
            2, device=device
        ).sum().item()  # a GPU too new for this torch fails here
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).strip().split("\n")[0]
        raise UserError(f"device '{name}' cannot be used: {reason}") from None
    return device


def describe(device: torch.device) -> str:
    """The name of the GPU, or of the processor with its usable cores."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return describe_cpu()


def peak_memory_gib(device: torch.device = torch.device("cpu")) -> float:
    """Peak memory so far: what torch held on a GPU, otherwise the resident memory of this process.

    Linux hands a parent's ``ru_maxrss`` on to its children; the high-water mark in ``/proc`` is a
    process's own.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
        return int(status.split("VmHWM:")[1].split()[0]) / 2**20
    except (OSError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20

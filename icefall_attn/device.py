"""Where a model runs."""

import logging

import torch

from icefall_attn.errors import UserError


def choose_device(name: str) -> torch.device:
    """``auto`` is the GPU if there is one that this torch can use.

    Raises:
      UserError: the named device cannot be used here.
    """
    if name == "auto":
        if not torch.cuda.is_available():
            return torch.device("cpu")
        try:
            return _tried("cuda")
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

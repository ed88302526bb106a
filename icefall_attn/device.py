"""Where a model runs."""

import torch

from icefall_attn.errors import UserError


def choose_device(name: str) -> torch.device:
    """``auto`` is the GPU if there is one.

    Raises:
      UserError: no such device here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).strip().split("\n")[0]
        raise UserError(f"device '{name}' cannot be used: {reason}") from None
    return device

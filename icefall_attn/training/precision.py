"""In which precision a model computes; its weights, gradients and losses are float32 in any case."""

from contextlib import AbstractContextManager

import torch

from icefall_attn.errors import UserError

PRECISIONS = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


class Precision:
    """Automatic casts of a device, and the scale that keeps float16's gradients above 0.

    The scale multiplies the loss; the gradients are divided by it after they have been summed up. It is
    halved when they overflow, which costs a step, and doubled after `PATIENCE` steps without.

    Args:
      name: one of `PRECISIONS`.
      device: of the model.

    Raises:
      UserError: the device cannot compute so.
    """

    # The losses are sums over frames, not means: their gradients are large without it, and those of
    # large batches want less than 1.
    FIRST, LEAST, PATIENCE = 2.0**4, 2.0**-10, 2000

    def __init__(self, name: str, device: torch.device):
        self.dtype, self.device = PRECISIONS[name], device
        self.scales = name == "float16"
        self.scale = self.FIRST if self.scales else 1.0
        self.good_steps = 0
        if name != "float32":
            self._try(name)

    def _try(self, name: str) -> None:
        one = torch.ones(2, 2, device=self.device)
        norm = torch.nn.LayerNorm(2).to(self.device)
        try:
            with self.autocast():
                product = torch.mm(one, one)
                norm(product)  # which torch 1.13 cannot do on a CPU
            done = product.dtype == self.dtype
        except RuntimeError:
            done = False
        if not done:
            raise UserError(
                f"train.precision={name} cannot be had on {self.device} with torch"
                f" {torch.__version__}; choose float32"
                + (" or bfloat16" if name == "float16" else "")
            )

    def autocast(self) -> AbstractContextManager:
        """What the model runs in."""
        enabled = self.dtype != torch.float32
        dtype = self.dtype if enabled else torch.bfloat16
        return torch.autocast(self.device.type, dtype=dtype, enabled=enabled)

    def after_step(self, finite: bool) -> bool:
        """Adapts the scale; True if a gradient that was not finite may be the scale's fault."""
        if not self.scales:
            return False
        if not finite:
            self.good_steps = 0
            could_be = self.scale > self.LEAST
            self.scale = max(self.scale / 2, self.LEAST)
            return could_be
        self.good_steps += 1
        if self.good_steps == self.PATIENCE:
            self.scale, self.good_steps = self.scale * 2, 0
        return False

    def state_dict(self) -> dict:
        """Plain numbers."""
        return {"scale": self.scale, "good_steps": self.good_steps}

    def load_state_dict(self, state: dict) -> None:
        """The inverse of `state_dict`."""
        if self.scales:
            self.scale, self.good_steps = state["scale"], state["good_steps"]

"""The mean of a model's weights over the steps of a training, kept up as it goes."""

from typing import Any, Dict, Optional

import torch
from torch import Tensor, nn


class RunningMean:
    """The mean of all floating values of a model's state after every ``every``-th step.

    From the means at two points of a training follows that of the steps between (`mean_between`).

    Args:
      model: whose state is averaged.
      every: steps from one sample to the next; 0 keeps no mean.
    """

    def __init__(self, model: nn.Module, every: int):
        self.model, self.every, self.count = model, every, 0
        self.mean: Dict[str, Tensor] = {}
        if every > 0:
            self.mean = {
                name: torch.zeros_like(value, dtype=torch.float64)
                for name, value in model.state_dict().items()
                if value.is_floating_point()
            }

    @torch.no_grad()
    def after_step(self, step: int) -> None:
        """Takes a sample if one is due after ``step``, counted from 1."""
        if self.every == 0 or step % self.every != 0:
            return
        self.count += 1
        state = self.model.state_dict()
        for name, mean in self.mean.items():
            mean.add_(state[name] - mean, alpha=1.0 / self.count)

    def state_dict(self) -> Dict[str, Any]:
        """Tensors and a number."""
        return {"count": self.count, "mean": self.mean}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """The inverse of `state_dict`."""
        self.count = state["count"]
        for name, mean in self.mean.items():
            mean.copy_(state["mean"][name])


def mean_between(
    first: Optional[Dict[str, Any]], last: Dict[str, Any]
) -> Dict[str, Tensor]:
    """The mean of the samples after ``first`` up to ``last``, float64.

    Args:
      first: an earlier `RunningMean.state_dict`; None for the beginning.
      last: a later one.

    Raises:
      ValueError: there is no sample between.
    """
    before = 0 if first is None else first["count"]
    if last["count"] <= before:
        raise ValueError("no sample was taken between")
    share = before / last["count"]
    return {
        name: (
            mean if before == 0 else (mean - share * first["mean"][name]) / (1 - share)
        )
        for name, mean in last["mean"].items()
    }

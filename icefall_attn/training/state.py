"""All of a training that a checkpoint holds, and where it may come from."""

import logging
from dataclasses import asdict
from typing import Any, Dict

import torch

from icefall_attn.config import RunConfig, to_dict
from icefall_attn.data.tokenizer import Tokenizer
from icefall_attn.errors import UserError
from icefall_attn.training.experiment import load_experiment
from icefall_attn.training.precision import Precision
from icefall_attn.training.progress import Progress
from icefall_attn.training.running_mean import RunningMean
from icefall_attn.training.same_run import differences
from icefall_attn.training.schedule import FlatOptimizer
from icefall_attn.transducer.model import Transducer


class TrainState:
    """Model, optimiser, scale of the loss, running mean and progress, as a run begins.

    Args:
      config: the run.
      device: of the model.
      processes: that train together.
    """

    def __init__(self, config: RunConfig, device: torch.device, processes: int):
        self.model = Transducer(config.model).to(device)
        self.optimizer = FlatOptimizer(self.model, config.optim)
        self.precision = Precision(config.train.precision, device)
        self.mean = RunningMean(self.model, config.train.average_every)
        self.progress = Progress(processes=processes)

    def values(self) -> Dict[str, Any]:
        """What a checkpoint holds of it."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "precision": self.precision.state_dict(),
            "running_mean": self.mean.state_dict(),
            "progress": asdict(self.progress),
        }

    def load(self, values: Dict[str, Any]) -> None:
        """The inverse of `values`."""
        self.model.load_state_dict(values["model"])
        self.optimizer.load_state_dict(values["optimizer"])
        self.precision.load_state_dict(values["precision"])
        self.mean.load_state_dict(values["running_mean"])
        self.progress = Progress(**values["progress"])

    def start_from(self, config: RunConfig, tokenizer: Tokenizer) -> None:
        """Takes the weights of the experiment ``train.init_from``, not its optimiser or progress.

        Raises:
          UserError: they are those of another model, or of other tokens.
        """
        exp_dir = config.train.init_from
        other = load_experiment(exp_dir, config.train.init_avg)
        if other.tokenizer.tokens != tokenizer.tokens:
            raise UserError(f"train.init_from={exp_dir} has other tokens than this run")
        try:
            self.model.load_state_dict(other.model.state_dict())
        except RuntimeError as error:
            there, here = to_dict(other.config.model), to_dict(config.model)
            reasons = [
                f"model.{name} is {a} there and {b} here"
                for name, a, b in differences(there, here)
            ]
            reason = "; ".join(reasons) or " ".join(str(error).split())[:300]
            raise UserError(
                f"the weights of train.init_from={exp_dir} do not fit: {reason}"
            ) from None
        logging.info("starting from the weights of %s, %s", exp_dir, other.name)

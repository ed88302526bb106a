"""Options of the training loop."""

from dataclasses import dataclass

from icefall_attn.training.precision import PRECISIONS


@dataclass
class TrainConfig:
    """How long, how often, how many.

    Attributes:
      seed: of everything random.
      init_from: experiment directory whose model the training starts from; its weights must fit, so
        that attention mechanisms can be exchanged that have the same ones (``full`` and
        ``prob_sparse``).
      init_avg: its epochs that are averaged, those of the lowest valid loss.
      num_epochs: epochs at most.
      max_steps: optimiser steps at most; 0 for no bound. Schedules of fixed length end there.
      average_every: steps between samples of the running mean of the weights, which decoding can
        take instead of single checkpoints (``--by running-mean``); 0 keeps none.
      accumulate: batches whose gradients make one step.
      regularise_after: steps before dropout and SpecAugment begin.
      check_memory: try the heaviest batches before the first step, and log what memory they take.
      log_every: steps between lines in the log and points in TensorBoard.
      save_every: steps between checkpoints within an epoch.
      keep_last: newest ``checkpoint-STEP.pt`` that are kept.
      keep_epochs: newest ``epoch-N.pt`` that are kept, beside as many of the best; 0 keeps all.
      valid_wer: also decode the valid set (greedy) after each epoch.
      tensorboard: write ``tensorboard/``.
      precision: of the model's computations: ``float32``, ``bfloat16`` or ``float16`` (with a scale of
        the loss that adapts itself); weights, gradients and losses are float32 in any case.
      device: ``auto`` (a GPU if there is one), ``cpu``, ``cuda``, ``cuda:1`` and so on.
    """

    seed: int = 42
    init_from: str = ""
    init_avg: int = 1
    num_epochs: int = 30
    max_steps: int = 0
    average_every: int = 100
    accumulate: int = 1
    regularise_after: int = 0
    check_memory: bool = True
    log_every: int = 50
    save_every: int = 1000
    keep_last: int = 2
    keep_epochs: int = 10
    valid_wer: bool = True
    tensorboard: bool = True
    precision: str = "float32"
    device: str = "auto"

    def __post_init__(self):
        if self.precision not in PRECISIONS:
            raise ValueError(
                f"train.precision must be one of {', '.join(PRECISIONS)}, not {self.precision!r}"
            )
        for name in (
            "num_epochs",
            "accumulate",
            "log_every",
            "save_every",
            "keep_last",
        ):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"train.{name} must be at least 1, not {getattr(self, name)}"
                )
        for name in ("max_steps", "average_every", "regularise_after", "keep_epochs"):
            if getattr(self, name) < 0:
                raise ValueError(
                    f"train.{name} must be 0 or more, not {getattr(self, name)}"
                )

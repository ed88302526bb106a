"""Options of the transducer loss."""

from dataclasses import dataclass


@dataclass
class LossConfig:
    """How the training loss is made.

    ``loss = simple_scale simple + pruned_scale(step) pruned + ctc_scale(step) ctc``, the sum
    over the batch divided by its encoder frames; with ``encoder.context.kind=dcn`` also
    ``distillation_scale`` times the mean squared difference of its two streams.

    Attributes:
      backend: who sums over alignments: ``k2``, ``torch``, or ``auto`` (k2 if it can be imported).
      prune_range: labels R kept per frame; raised for a batch where it could not cover.
      rnnt_type: ``regular``, ``modified`` or ``constrained``, as k2 defines them. The last two say at
        most one token a frame, as beam and graph search do.
      lm_scale: share of the predictor's own distribution in the simple loss.
      am_scale: share of the encoder's own distribution in the simple loss.
      simple_scale: weight of the simple loss.
      warm_steps: steps during which the pruned loss weighs 0; 0.1 as long again, 1 after that.
      delay_penalty: favours early symbols.
      fast_emit: share by which the gradient of labels is raised over that of blanks (FastEmit).
      negligible: cells whose gradient is below this share of the largest are left out of the
        joiner's backward pass.
      ctc_scale: weight of the auxiliary CTC at the first step, if the model has a CTC head.
      ctc_scale_end: its weight at step ``train.max_steps``, to which it falls linearly; without
        that bound it stays.
      distillation_scale: weight of what draws the causal stream of ``dcn`` to the non-causal one.
    """

    backend: str = "auto"
    prune_range: int = 5
    rnnt_type: str = "regular"
    lm_scale: float = 0.25
    am_scale: float = 0.0
    simple_scale: float = 0.5
    warm_steps: int = 500
    delay_penalty: float = 0.0
    fast_emit: float = 0.0
    negligible: float = 1e-4
    ctc_scale: float = 0.7
    ctc_scale_end: float = 0.3
    distillation_scale: float = 1.0

    def __post_init__(self):
        if self.backend not in ("auto", "k2", "torch"):
            raise ValueError(
                f"loss.backend must be 'auto', 'k2' or 'torch', not {self.backend!r}"
            )
        if self.prune_range < 2:
            raise ValueError(
                f"loss.prune_range must be at least 2, not {self.prune_range}"
            )
        for name in ("lm_scale", "am_scale", "simple_scale", "warm_steps", "delay_penalty",
                     "fast_emit", "negligible", "ctc_scale", "ctc_scale_end",
                     "distillation_scale"):  # fmt: skip
            if getattr(self, name) < 0:
                raise ValueError(
                    f"loss.{name} must not be negative, but is {getattr(self, name)}"
                )
        if self.lm_scale + self.am_scale > 1:
            raise ValueError(
                f"loss.lm_scale={self.lm_scale} and loss.am_scale={self.am_scale} are shares, so "
                "that they must not add up to more than 1"
            )
        if self.rnnt_type not in ("regular", "modified", "constrained"):
            raise ValueError(
                "loss.rnnt_type must be 'regular', 'modified' or 'constrained', "
                f"not {self.rnnt_type!r}"
            )

    def pruned_scale(self, step: int) -> float:
        """Weight of the pruned loss at ``step`` (from 0)."""
        if step < self.warm_steps:
            return 0.0
        return 0.1 if step < 2 * self.warm_steps else 1.0

    def ctc_scale_at(self, progress: float) -> float:
        """Weight of the CTC loss at ``progress`` (0 to 1) of the training."""
        return self.ctc_scale + (self.ctc_scale_end - self.ctc_scale) * min(
            progress, 1.0
        )

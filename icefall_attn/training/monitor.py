"""What a person watches: console, log file and TensorBoard."""

import logging
from pathlib import Path
from typing import Dict, List

import torch
from torch import nn

from icefall_attn.device import peak_memory_gib
from icefall_attn.progress import progress_bar
from icefall_attn.training.metrics import Measured
from icefall_attn.training.options import TrainConfig


class Monitor:
    """One line per ``log_every`` steps, the same numbers in TensorBoard, and a progress bar.

    Args:
      exp_dir: where ``tensorboard/`` lies.
      options: how often, how long.
      step: steps done before; what an interrupted run wrote past them is hidden.
      shown: of several processes one shows what all do; the others have their log files.
    """

    def __init__(
        self, exp_dir: Path, options: TrainConfig, step: int, shown: bool = True
    ):
        self.writer = None
        if options.tensorboard and shown:
            from torch.utils.tensorboard import SummaryWriter

            self.writer = SummaryWriter(
                str(exp_dir / "tensorboard"), purge_step=step + 1
            )
        self.bar = progress_bar(
            total=options.max_steps or None,
            shown=shown,
            unit="step",
            dynamic_ncols=True,
            smoothing=0.05,
        )

    def train(
        self,
        measured: Measured,
        progress,
        rate: float,
        model: nn.Module,
    ) -> None:
        """Reports some steps."""
        losses, counts = measured.losses, measured.counts
        seconds = max(counts.get("seconds", 0.0), 1e-9)
        steps = max(counts.get("steps", 1.0), 1.0)
        values = {
            **losses,
            "learning_rate": rate,
            "grad_norm": counts.get("grad_norm", 0.0) / steps,
            "encoder_frames_per_second": counts.get("frames", 0.0) / seconds,
            "audio_seconds_per_second": counts.get("audio", 0.0) / seconds,
            "seconds_per_step": seconds / steps,
            "data_wait_share": counts.get("waited", 0.0) / seconds,
            "padding_share": 1.0
            - counts.get("valid", 0.0) / max(counts.get("places", 1.0), 1.0),
            "memory_gib": peak_memory_gib(next(model.parameters()).device),
            "dropped_utterances": progress.dropped,
            "skipped_steps": progress.skipped_steps,
        }
        norms = _gradient_norms(model)
        shares = {name: part / seconds for name, part in measured.parts.items()}
        line = [
            f"epoch {progress.epoch}, step {progress.step}: {_listed(losses, '{:.4f}')}",
            f"lr {rate:.2e}",
            f"grad norm {values['grad_norm']:.2f} (clipped: {_listed(norms, '{:.2f}')})",
            f"{values['seconds_per_step']:.3f} s/step ({_listed(shares, '{:.0%}')})",
            f"{values['audio_seconds_per_second']:.1f} x real time",
            f"waited {values['data_wait_share']:.0%}",
            f"padding {values['padding_share']:.0%}",
            f"memory {values['memory_gib']:.2f} GiB",
        ]
        if len(measured.speeds) > 1:
            least, most = min(measured.speeds), max(measured.speeds)
            line.append(f"processes {least:.1f} to {most:.1f} x")
        logging.info("%s", ", ".join(line))
        self.bar.set_postfix(loss=f"{losses.get('total', 0.0):.3f}", lr=f"{rate:.1e}")
        self.bar.update(progress.step - self.bar.n)
        self._scalars("train", values, progress.step)
        self._scalars("grad_norm_clipped", norms, progress.step)
        self._scalars("time_share", shares, progress.step)
        ranks = {str(rank): speed for rank, speed in enumerate(measured.speeds)}
        self._scalars("audio_seconds_per_second_of_rank", ranks, progress.step)
        self._scalars("train", {"epoch": progress.epoch}, progress.step)
        self._scalars("attention", _watched(model), progress.step)

    def valid(self, result, progress, epoch: int, pictures: Dict) -> None:
        """Reports a validation; ``pictures`` are figures by name."""
        values = {k: v for k, v in result._asdict().items() if v is not None}
        text = ", ".join(
            f"{name} {value:.2f} %" if name == "wer" else f"{name} {value:.4f}"
            for name, value in values.items()
        )
        logging.info(
            "epoch %d ends: valid %s; step %d, %.0f s",
            epoch,
            text,
            progress.step,
            progress.seconds,
        )
        self._scalars("valid", values, progress.step)
        if self.writer is not None:
            for name, figure in pictures.items():
                self.writer.add_figure(name, figure, progress.step)
            self.writer.flush()

    def close(self) -> None:
        """Ends the bar and the event file."""
        self.bar.close()
        if self.writer is not None:
            self.writer.close()

    def _scalars(self, group: str, values: Dict[str, float], step: int) -> None:
        if self.writer is not None:
            for name, value in values.items():
                self.writer.add_scalar(f"{group}/{name}", value, step)


def _listed(values: Dict[str, float], form: str) -> str:
    return ", ".join(f"{name} {form.format(value)}" for name, value in values.items())


def _gradient_norms(model: nn.Module) -> Dict[str, float]:
    names: List[str] = []
    norms = []
    for name, child in model.named_children():
        grads = [p.grad.norm() for p in child.parameters() if p.grad is not None]
        if grads:
            names.append(name)
            norms.append(torch.stack(grads).norm())
    return dict(zip(names, torch.stack(norms).tolist()))


def _watched(model: nn.Module) -> Dict[str, float]:
    """What attention modules count (see `attention.registry`): means over the layers."""
    found: Dict[str, List[torch.Tensor]] = {}
    for module in model.modules():
        if hasattr(module, "watch"):
            for name, value in module.watch().items():
                found.setdefault(name, []).append(value)
    return {name: float(torch.stack(each).mean()) for name, each in found.items()}

"""Linear mechanisms whose positions are cosines: ``cosformer``, ``lbla``, ``m_ape``."""

import math
from dataclasses import dataclass
from typing import List, Optional, Tuple

import torch
from torch import Tensor, nn

from icefall_attn.attention.linear.base import LinearAttention, LinearConfig
from icefall_attn.attention.registry import register


@dataclass
class PeriodConfig(LinearConfig):
    """Options of mechanisms whose cosine stretches over M frames.

    Attributes:
      period: M, at least the length of the longest utterance; 0 takes each utterance's own length,
        so that padding changes nothing.
    """

    period: int = 0

    def __post_init__(self):
        super().__post_init__()
        if self.period < 0:
            raise ValueError(f"period must be 0 or more frames, not {self.period}")

    @property
    def longest(self) -> int:
        """Frames of the longest utterance, 0 for no bound."""
        return self.period


class PeriodicAttention(LinearAttention):
    """A linear mechanism whose factors are functions of ``pi j / 2M``."""

    def __init__(
        self, dim: int, heads: int, dropout: float, config: PeriodConfig, layer: int = 0
    ):
        super().__init__(dim, heads, dropout, config, layer)
        self.period, self.longest = config.period, config.longest
        self.way_out = (
            "its weights would be negative: cut it, or train with a larger period"
        )

    @staticmethod
    def objection(config: PeriodConfig, encoder) -> Optional[str]:
        """See `registry`."""
        if encoder.context.kind != "full" and config.period == 0:
            return (
                "period=0 stretches the cosine over the whole utterance, whose length "
                f"context.kind={encoder.context.kind} does not know; set period to the longest length in frames"
            )
        return None

    def angle(self, frames: Tensor, lengths: Tensor) -> Tensor:
        """``pi j / 2M``, ``(1 or B, 1, T', 1)`` float64."""
        frames = frames.to(torch.float64)[:, None, :, None]
        if self.period > 0:
            return 0.5 * math.pi * frames / self.period
        length = lengths.clamp(min=1).to(torch.float64)[:, None, None, None]
        return 0.5 * math.pi * frames / length


@register("cosformer")
class CosformerAttention(PeriodicAttention):
    """Weights ``psi(q_i) psi(k_j) cos(pi (i - j) / 2M)`` (Qin et al. 2022; M-RPE)."""

    @dataclass
    class Config(PeriodConfig):
        """Options of ``cosformer``; its kernel is ReLU."""

        kernel: str = "relu"

    def multipliers(
        self, frames: Tensor, lengths: Tensor
    ) -> List[Tuple[Optional[Tensor], Tensor]]:
        angle = self.angle(frames, lengths)
        cos, sin = torch.cos(angle), torch.sin(angle)
        return [(cos, cos), (sin, sin)]


@register("lbla")
class LocalityBiasedAttention(CosformerAttention):
    """Locality-biased linear attention (Sun et al. 2022), after the abstract; kernel not verified.

    The abstract tells of a kernel function and a cosine re-weighing matrix that favours
    neighbouring tokens, which is what `CosformerAttention` has; its kernel here is ELU + 1.
    """

    @dataclass
    class Config(PeriodConfig):
        """Options of ``lbla``, after the abstract; kernel not verified."""

        kernel: str = "elu1"


@register("m_ape")
class AbsoluteLinearAttention(PeriodicAttention):
    """Weights ``psi(q_i) (psi(k_j) cos(pi j / 2M) W)`` (LMEC, eq. 8)."""

    @dataclass
    class Config(PeriodConfig):
        """Options of ``m_ape``.

        Attributes:
          extend: learn the vector W; otherwise it is 1.
        """

        extend: bool = True

    def __init__(
        self, dim: int, heads: int, dropout: float, config: Config, layer: int = 0
    ):
        super().__init__(dim, heads, dropout, config, layer)
        self.extension = nn.Parameter(
            torch.ones(dim // heads), requires_grad=config.extend
        )

    def multipliers(
        self, frames: Tensor, lengths: Tensor
    ) -> List[Tuple[Optional[Tensor], Tensor]]:
        angle = self.angle(frames, lengths)
        return [(None, torch.cos(angle) * self.extension)]

"""Linear attention with learned positions: ``lmla``."""

import math
from dataclasses import dataclass
from typing import List, Optional, Tuple

import torch
from torch import Tensor, nn

from icefall_attn.attention.linear.base import LinearAttention, LinearConfig, widen
from icefall_attn.attention.registry import register


@register("lmla")
class LearnableLinearAttention(LinearAttention):
    """Weights ``psi(q_i) (psi(k_j) cos(R_j))`` with a learned table R (LMEC, eq. 9; LM-APE)."""

    @dataclass
    class Config(LinearConfig):
        """Options of ``lmla``.

        Attributes:
          max_length: rows of R, in frames of 40 ms.
          scope: ``head`` shares R's columns between heads, ``model`` has them for each.
          init: ``uniform`` (0 to pi / 2: all weights positive), ``normal``, or ``m_ape``
            (``pi j / 2 max_length``).
          beyond: what a longer utterance gets: ``error``, ``clamp`` (the last row) or ``interpolate``
            (the whole table stretched to its length).
        """

        max_length: int = 2000
        scope: str = "head"
        init: str = "uniform"
        beyond: str = "error"

        def __post_init__(self):
            super().__post_init__()
            choices = {
                "scope": ("head", "model"),
                "init": ("uniform", "normal", "m_ape"),
                "beyond": ("error", "clamp", "interpolate"),
            }
            for name, known in choices.items():
                value = getattr(self, name)
                if value not in known:
                    raise ValueError(
                        f"lmla.{name} must be one of {', '.join(known)}, not {value!r}"
                    )
            if self.max_length < 1:
                raise ValueError(
                    f"lmla.max_length must be at least 1, not {self.max_length}"
                )

        @property
        def longest(self) -> int:
            """Frames of the longest utterance, 0 for no bound."""
            return self.max_length if self.beyond == "error" else 0

    @staticmethod
    def objection(config: Config, encoder) -> Optional[str]:
        """See `registry`."""
        if encoder.context.kind != "full" and config.beyond == "interpolate":
            return (
                "beyond=interpolate stretches the table over the whole utterance, whose length "
                f"context.kind={encoder.context.kind} does not know; use clamp"
            )
        return None

    def __init__(
        self, dim: int, heads: int, dropout: float, config: Config, layer: int = 0
    ):
        super().__init__(dim, heads, dropout, config, layer)
        self.max_length, self.beyond = config.max_length, config.beyond
        self.longest = config.longest
        self.way_out = "cut it, or train with a larger lmla.max_length or with lmla.beyond=clamp or interpolate"
        own = heads if config.scope == "model" else 1
        # never 0, where cos has no slope; and no weight decay, which would draw it there
        table = torch.empty(own, config.max_length, dim // heads)
        if config.init == "uniform":
            nn.init.uniform_(table, 0.0, 0.5 * math.pi)
        elif config.init == "normal":
            nn.init.normal_(table)
        else:
            rows = torch.arange(config.max_length) / config.max_length
            table.copy_((0.5 * math.pi * rows)[None, :, None].expand_as(table))
        self.table = nn.Parameter(table)
        self.table.no_weight_decay = True

    def multipliers(
        self, frames: Tensor, lengths: Tensor
    ) -> List[Tuple[Optional[Tensor], Tensor]]:
        return [(None, torch.cos(widen(self.rows(frames, lengths))))]

    def rows(self, frames: Tensor, lengths: Tensor) -> Tensor:
        """R at ``frames``, ``(1 or B, 1 or H, T', D / H)``."""
        last = self.max_length - 1
        if self.beyond != "interpolate":
            return self.table[:, frames.clamp(max=last)].transpose(0, 1)
        # an utterance of more frames has the whole table stretched to its own length
        step = last / (lengths - 1).clamp(min=max(last, 1)).to(torch.float64)
        place = (frames * step.unsqueeze(1)).clamp(max=last)
        lower = place.floor().long()
        share = (place - lower).to(self.table.dtype)[:, None, :, None]
        below = self.table[:, lower].transpose(0, 1)
        above = self.table[:, (lower + 1).clamp(max=last)].transpose(0, 1)
        return below + share * (above - below)

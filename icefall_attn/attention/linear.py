"""Linear attention: a kernel in place of the soft-max, positions as multipliers of the keys.

With a kernel psi and multipliers m, the weight of key j for query i is
``sum_r (psi(q_i) a_ir) . (psi(k_j) m_jr)``, so that sums over keys can be taken first
(`right`, linear in the length) or last (`left`, quadratic): the same values and gradients.
"""

import math
from dataclasses import dataclass
from typing import List, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from icefall_attn.attention.projections import Projections
from icefall_attn.attention.registry import AttentionContext, register

KERNELS = ("elu1", "relu", "sigmoid", "exp")


@dataclass
class LinearConfig:
    """Options that all linear mechanisms have.

    Attributes:
      kernel: psi: ``elu1`` (ELU + 1), ``relu``, ``sigmoid`` or ``exp``.
      product: ``left`` sums over keys last, ``right`` first, ``auto`` takes left for utterances
        of at most D / H frames, as the LMEC paper does.
      normalizer: ``reweighted`` divides by the sum of the weights; ``kernel`` by that of the weights
        without positions, which is never near 0.
    """

    kernel: str = "elu1"
    product: str = "auto"
    normalizer: str = "reweighted"

    def __post_init__(self):
        choices = {
            "kernel": KERNELS,
            "product": ("auto", "left", "right"),
            "normalizer": ("reweighted", "kernel"),
        }
        for name, known in choices.items():
            value = getattr(self, name)
            if value not in known:
                raise ValueError(
                    f"{name} of linear attention must be one of {', '.join(known)}, not {value!r}"
                )


class LinearAttention(Projections):
    """What the linear mechanisms share; one adds `multipliers`."""

    uses_input_positions = True

    def __init__(
        self, dim: int, heads: int, dropout: float, config: LinearConfig, layer: int = 0
    ):
        super().__init__(dim, heads)
        self.kernel, self.product = config.kernel, config.product
        self.reweighted = config.normalizer == "reweighted"
        self.eps = 1e-6

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        """x: ``(B, T', D)``. Returns ``(B, T', D)``."""
        # in float32 even under autocast: sums over thousands of frames leave float16's range
        query, key, value = self.project(x)
        query, key, value = self.psi(widen(query)), self.psi(widen(key)), widen(value)
        visible = context.valid[:, None, :, None].to(key.dtype)
        key = key * visible
        factors = [
            (a.to(key.dtype), b.to(key.dtype))
            for a, b in self.multipliers(context.valid)
        ]
        out = attend_linearly(
            query, key, value, factors, self.goes_left(query), self.reweighted, self.eps
        )
        return self.leave((out * visible).to(x.dtype))

    def psi(self, x: Tensor) -> Tensor:
        """The kernel, at least 0 everywhere."""
        if self.kernel == "elu1":
            return F.elu(x) + 1.0
        if self.kernel == "relu":
            return F.relu(x)
        if self.kernel == "sigmoid":
            return torch.sigmoid(x)
        return torch.exp(x)

    def goes_left(self, query: Tensor) -> bool:
        """Whether sums over keys come last."""
        if self.product == "auto":
            return query.size(2) <= query.size(3)
        return self.product == "left"

    def multipliers(self, valid: Tensor) -> List[Tuple[Tensor, Tensor]]:
        """Pairs of factors of queries and keys that broadcast with ``(B, H, T', D / H)``."""
        raise NotImplementedError


def attend_linearly(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    factors: List[Tuple[Tensor, Tensor]],
    left: bool,
    reweighted: bool,
    eps: float,
) -> Tensor:
    """``sum_j w_ij v_j / sum_j w_ij`` with ``w_ij`` the sum over factor pairs of products.

    Args:
      query, key: ``(B, H, T', d)`` kernels, keys 0 in padding.
      value: ``(B, H, T', d)``.
      factors: see `LinearAttention.multipliers`.
      left: sum over keys last.
      reweighted: divide by the sum of the weights, otherwise of the kernels alone.
      eps: the least absolute value of the divisor; its sign is kept.
    """
    total = torch.zeros_like(query)
    norm = torch.zeros_like(query[..., :1])
    for of_query, of_key in factors:
        q, k = query * of_query, key * of_key
        if left:
            weights = torch.matmul(q, k.transpose(2, 3))
            total = total + torch.matmul(weights, value)
            norm = norm + weights.sum(dim=3, keepdim=True)
        else:
            total = total + torch.matmul(q, torch.matmul(k.transpose(2, 3), value))
            norm = norm + torch.matmul(q, k.sum(dim=2).unsqueeze(3))
    if not reweighted:
        norm = torch.matmul(query, key.sum(dim=2).unsqueeze(3))
    sign = torch.where(norm < 0, -torch.ones_like(norm), torch.ones_like(norm))
    return total / (sign * norm.abs().clamp(min=eps))


def widen(x: Tensor) -> Tensor:
    """At least float32."""
    return x if x.dtype == torch.float64 else x.float()


def positions_of(valid: Tensor) -> Tuple[Tensor, Tensor]:
    """Frame numbers ``(1, 1, T', 1)`` and lengths ``(B, 1, 1, 1)``, float64."""
    frames = torch.arange(valid.size(1), device=valid.device, dtype=torch.float64)
    lengths = valid.sum(dim=1).clamp(min=1).to(torch.float64)
    return frames[None, None, :, None], lengths[:, None, None, None]


@register("cosformer")
class CosformerAttention(LinearAttention):
    """Weights ``psi(q_i) psi(k_j) cos(pi (i - j) / 2M)`` (Qin et al. 2022; M-RPE), M the length.

    M is each utterance's own length, so that padding changes nothing.
    """

    @dataclass
    class Config(LinearConfig):
        """Options of ``cosformer``; its kernel is ReLU."""

        kernel: str = "relu"

    def multipliers(self, valid: Tensor) -> List[Tuple[Tensor, Tensor]]:
        frames, lengths = positions_of(valid)
        angle = 0.5 * math.pi * frames / lengths
        cos, sin = torch.cos(angle), torch.sin(angle)
        return [(cos, cos), (sin, sin)]


@register("lbla")
class LocalityBiasedAttention(CosformerAttention):
    """Locality-biased linear attention (Sun et al. 2022), after the abstract; kernel not verified.

    The abstract tells of a kernel function and a cosine re-weighing matrix that favours
    neighbouring tokens, which is what `CosformerAttention` has; its kernel here is ELU + 1.
    """

    @dataclass
    class Config(LinearConfig):
        """Options of ``lbla``, after the abstract; kernel not verified."""

        kernel: str = "elu1"


@register("m_ape")
class AbsoluteLinearAttention(LinearAttention):
    """Weights ``psi(q_i) (psi(k_j) cos(pi j / 2M) W)`` (LMEC, eq. 8), M the length."""

    @dataclass
    class Config(LinearConfig):
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

    def multipliers(self, valid: Tensor) -> List[Tuple[Tensor, Tensor]]:
        frames, lengths = positions_of(valid)
        factor = torch.cos(0.5 * math.pi * frames / lengths) * self.extension
        return [(torch.ones_like(frames), factor)]


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

    def __init__(
        self, dim: int, heads: int, dropout: float, config: Config, layer: int = 0
    ):
        super().__init__(dim, heads, dropout, config, layer)
        self.max_length, self.beyond = config.max_length, config.beyond
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

    def multipliers(self, valid: Tensor) -> List[Tuple[Tensor, Tensor]]:
        factor = torch.cos(widen(self.rows(valid.size(1)))).unsqueeze(0)
        return [(torch.ones_like(factor[:, :1, :, :1]), factor)]

    def rows(self, frames: int) -> Tensor:
        """R for ``frames`` frames, ``(1 or H, T', D / H)``."""
        if frames <= self.max_length:
            return self.table[:, :frames]
        if self.beyond == "error":
            raise ValueError(
                f"{frames} frames are more than lmla.max_length={self.max_length}; raise it, or set "
                "lmla.beyond to clamp or interpolate"
            )
        if self.beyond == "clamp":
            last = self.table[:, -1:].expand(-1, frames - self.max_length, -1)
            return torch.cat((self.table, last), dim=1)
        stretched = F.interpolate(
            self.table.transpose(1, 2), size=frames, mode="linear", align_corners=True
        )
        return stretched.transpose(1, 2)

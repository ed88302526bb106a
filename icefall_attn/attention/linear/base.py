"""What all linear mechanisms share: options, kernels, passes and streams."""

from dataclasses import dataclass
from typing import List, NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from icefall_attn.attention.linear.sums import attend_causally, attend_linearly
from icefall_attn.attention.projections import Projections
from icefall_attn.attention.registry import AttentionContext
from icefall_attn.errors import UserError

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


class LinearState(NamedTuple):
    """What a stream keeps of its past in one layer.

    Attributes:
      frame: frames so far.
      sums: ``(R, B, H, d, d + 1)``, of ``psi(k_j) m_jr`` times ``(v_j, 1)``, for each factor pair r.
      kernels: ``(B, H, 1, d)``, of ``psi(k_j)``.
    """

    frame: int
    sums: Tensor
    kernels: Tensor


class LinearAttention(Projections):
    """What the linear mechanisms share; one adds `multipliers`."""

    uses_input_positions = True
    scores_keys = False

    def __init__(
        self, dim: int, heads: int, dropout: float, config: LinearConfig, layer: int = 0
    ):
        super().__init__(dim, heads)
        self.kernel, self.product = config.kernel, config.product
        self.reweighted = config.normalizer == "reweighted"
        self.piece = 64  # frames that a causal pass sums by pairs
        self.longest, self.way_out = 0, ""  # frames of an utterance; 0 for no bound

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        """x: ``(B, T', D)``. Returns ``(B, T', D)``."""
        query, key, value = self.project(x)
        if torch.jit.is_scripting():
            return self.leave(self.whole(query, key, value, context).to(x.dtype))
        # sums over thousands of frames need float32, whatever autocast says
        with torch.autocast(x.device.type, enabled=False):
            out = self.whole(query, key, value, context)
        return self.leave(out.to(x.dtype))

    def whole(
        self, query: Tensor, key: Tensor, value: Tensor, context: AttentionContext
    ) -> Tensor:
        """A pass over whole utterances, ``(B, H, T', d)``, at least in float32."""
        if 0 < self.longest < query.size(2):
            self.check(int(context.valid.sum(dim=1).max()))
        query, key, value = self.psi(widen(query)), self.psi(widen(key)), widen(value)
        visible = context.valid[:, None, :, None].to(key.dtype)
        frames = torch.arange(query.size(2), device=query.device)
        factors = self.factors(frames, context.valid.sum(dim=1), visible)
        left = self.goes_left(query)
        norm: Optional[Tensor] = None
        if not self.reweighted:
            norm = self.kernel_norm(query, key * visible, context.causal)
        if context.causal:
            piece = query.size(2) if left else self.piece
            batch, heads, _, d = query.shape
            before = query.new_zeros([len(factors), batch, heads, d, d + 1])
            out = attend_causally(query, key, value, factors, piece, before, norm)[0]
        else:
            out = attend_linearly(query, key, value, factors, left, norm)
        return out * visible

    def check(self, frames: int) -> None:
        """Refuses an utterance that is longer than the positions reach.

        Raises:
          UserError: naming the way out.
        """
        if frames > self.longest:
            raise UserError(
                f"an utterance of {frames} frames is longer than {self.longest}; {self.way_out}"
            )

    def factors(
        self, frames: Tensor, lengths: Tensor, visible: Tensor
    ) -> List[Tuple[Optional[Tensor], Tensor]]:
        """The `multipliers`, in the type of ``visible``, those of the keys times that."""
        result: List[Tuple[Optional[Tensor], Tensor]] = []
        for of_query, of_key in self.multipliers(frames, lengths):
            if of_query is not None:
                of_query = of_query.to(visible.dtype)
            result.append((of_query, of_key.to(visible.dtype) * visible))
        return result

    def kernel_norm(self, query: Tensor, key: Tensor, causal: bool) -> Tensor:
        """``psi(q_i) sum_j psi(k_j)`` over the keys that i sees, ``(B, H, T', 1)``."""
        if causal:
            return (query * key.cumsum(dim=2)).sum(dim=3, keepdim=True)
        return torch.matmul(query, key.sum(dim=2).unsqueeze(3))

    @torch.jit.unused
    def init_state(self, batch_size: int) -> LinearState:
        """The state of ``batch_size`` streams that begin together."""
        weight = widen(self.query.weight)
        one = torch.ones(1, dtype=torch.int64, device=weight.device)
        pairs, d = len(self.multipliers(one - 1, one)), weight.size(0) // self.heads
        return LinearState(
            0,
            weight.new_zeros(pairs, batch_size, self.heads, d, d + 1),
            weight.new_zeros(batch_size, self.heads, 1, d),
        )

    @torch.jit.unused
    def step(self, x: Tensor, state: LinearState) -> Tuple[Tensor, LinearState]:
        """The next frames ``(B, n, D)`` of streams: what a causal pass gives for them."""
        query, key, value = self.project(x)
        with torch.autocast(x.device.type, enabled=False):
            query, key = self.psi(widen(query)), self.psi(widen(key))
            frame = state.frame + x.size(1)
            if self.longest > 0:
                self.check(frame)
            frames = torch.arange(state.frame, frame, device=x.device)
            lengths = torch.full((x.size(0),), frame, device=x.device)
            factors = self.factors(frames, lengths, key.new_ones(1))
            kernels = state.kernels + key.cumsum(dim=2)
            norm = None
            if not self.reweighted:
                norm = (query * kernels).sum(dim=3, keepdim=True)
            out, sums = attend_causally(
                query, key, widen(value), factors, self.piece, state.sums, norm
            )
        state = LinearState(frame, sums, kernels[:, :, -1:])
        return self.leave(out.to(x.dtype)), state

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

    def multipliers(
        self, frames: Tensor, lengths: Tensor
    ) -> List[Tuple[Optional[Tensor], Tensor]]:
        """R pairs of factors of queries and keys that broadcast with ``(B, H, T', D / H)``.

        None stands for a factor of 1.

        Args:
          frames: ``(T',)`` numbers of the frames in their utterances, from 0.
          lengths: ``(B,)`` of the utterances.
        """
        raise NotImplementedError


def widen(x: Tensor) -> Tensor:
    """At least float32."""
    return x if x.dtype == torch.float64 else x.float()

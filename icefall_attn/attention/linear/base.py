"""What all linear mechanisms share: options, kernels, passes and streams."""

from dataclasses import dataclass
from typing import Dict, List, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from icefall_attn.attention.linear.sums import (
    divide,
    pair_weights,
    sum_causally,
    sum_keys_first,
)
from icefall_attn.attention.projections import Projections
from icefall_attn.attention.contexts import AttentionContext, by_order, unlimited
from icefall_attn.errors import UserError
from icefall_attn.nn.dropout import Dropout

KERNELS = ("elu1", "relu", "sigmoid", "exp")
PRODUCTS = ("auto", "left", "right", "train_left")
SMALL = 1e-3  # a divisor that is watched


@dataclass
class LinearConfig:
    """Options that all linear mechanisms have.

    Attributes:
      kernel: psi: ``elu1`` (ELU + 1), ``relu``, ``sigmoid`` or ``exp``.
      product: ``left`` sums over keys last, ``right`` first, ``auto`` takes left for utterances
        of at most D / H frames; ``train_left`` is left in training and auto otherwise, as in the LMEC paper.
        All are one function, but that ``left`` and ``train_left`` have weights that can be
        dropped out, in the context ``full``.
      normalizer: ``reweighted`` divides by the sum of the weights; ``kernel`` by that of the weights
        without positions, which is never near 0.
    """

    kernel: str = "elu1"
    product: str = "auto"
    normalizer: str = "reweighted"

    def __post_init__(self):
        choices = {
            "kernel": KERNELS,
            "product": PRODUCTS,
            "normalizer": ("reweighted", "kernel"),
        }
        for name, known in choices.items():
            value = getattr(self, name)
            if value not in known:
                raise ValueError(
                    f"{name} of linear attention must be one of {', '.join(known)}, not {value!r}"
                )


class LinearAttention(Projections):
    """What the linear mechanisms share; one adds `multipliers`.

    Of the products only the left one makes weights, so that it alone has ``dropout``, and only where it was
    asked for: an utterance's length does not decide about it.
    """

    uses_input_positions = True
    scores_keys = False

    def __init__(
        self, dim: int, heads: int, dropout: float, config: LinearConfig, layer: int = 0
    ):
        super().__init__(dim, heads)
        self.kernel, self.product = config.kernel, config.product
        self.reweighted = config.normalizer == "reweighted"
        made = config.product in ("left", "train_left")
        self.weights_dropout = Dropout(dropout if made else 0.0)
        self.divisors = None  # how many were small, and how many there were
        self.piece = 64  # frames that a causal pass sums by pairs
        self.longest, self.way_out = 0, ""  # frames of an utterance; 0 for no bound

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        """x: ``(B, T', D)``. Returns ``(B, T', D)``."""
        bias = context.bias
        if not by_order(context.window):
            assert bias is not None
            times = torch.arange(x.size(1), device=x.device) * context.valid
            query, key, value = self.parts(x, times)
            return self.finish(
                self.mix(self.weigh(self.scores(query, key, 0), bias), value)
            )
        query, key, value = self.project(x)
        if torch.jit.is_scripting():
            return self.leave(self.whole(query, key, value, context).to(x.dtype))
        # sums over thousands of frames need float32, whatever autocast says. (Scripted and traced modules follow
        # it, and want to be run outside of it.)
        with torch.autocast(x.device.type, enabled=False):
            out = self.whole(query, key, value, context)
        return self.leave(out.to(x.dtype))

    def whole(
        self, query: Tensor, key: Tensor, value: Tensor, context: AttentionContext
    ) -> Tensor:
        """A pass over whole utterances, ``(B, H, T', d)``, at least in float32."""
        # of padded frames first, as that does not wait for the device; a trace would hold to the answer
        if self.longest > 0 and (
            query.size(2) > self.longest or torch.jit.is_tracing()
        ):
            refuse_longer(context.valid.sum(dim=1), self.longest, self.way_out)
        query, key, value = self.psi(widen(query)), self.psi(widen(key)), widen(value)
        visible = context.valid[:, None, :, None].to(key.dtype)
        frames = torch.arange(query.size(2), device=query.device).unsqueeze(0)
        factors = self.factors(frames, context.valid.sum(dim=1), visible)
        left, causal = self.goes_left(query), not unlimited(context.window.ahead)
        ahead = context.window.ahead if causal else 0
        if ahead > 0:  # a query that looks ahead is a causal one that comes later
            query = F.pad(query, (0, 0, ahead, 0))
            key, value = F.pad(key, (0, 0, 0, ahead)), F.pad(value, (0, 0, 0, ahead))
            factors = later(factors, ahead)
        if causal:
            piece = query.size(2) if left else self.piece
            total, norm = sum_causally(query, key, value, factors, piece)
        elif left:
            weights = pair_weights(query, key, factors)
            total = torch.matmul(self.weights_dropout(weights), value)
            norm = weights.sum(dim=3, keepdim=True)
        else:
            total, norm = sum_keys_first(query, key, value, factors)
        if not self.reweighted:
            seen = key * F.pad(visible, (0, 0, 0, ahead))
            norm = self.kernel_norm(query, seen, causal)
        total, norm = total[:, :, ahead:], norm[:, :, ahead:]
        if self.training:
            self.count_small(norm, visible)
        return divide(total, norm) * visible

    @torch.jit.unused
    def count_small(self, norm: Tensor, visible: Tensor) -> None:
        """Adds up divisors, of which there may be small ones where weights can be negative."""
        small = ((norm.detach().abs() < SMALL) & (visible > 0)).sum()
        counts = torch.stack((small, visible.sum().long() * norm.size(1)))
        self.divisors = counts if self.divisors is None else self.divisors + counts

    @torch.jit.unused
    def watch(self) -> Dict[str, Tensor]:
        """See `registry`: the share of divisors near 0 since the last call."""
        counts, self.divisors = self.divisors, None
        if counts is None:
            return {}
        return {"small_divisors": counts[0] / counts[1].clamp(min=1)}

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

    def parts(self, x: Tensor, times: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        """See `registry`: all factor pairs side by side, and a 1 beside each value.

        A normaliser without positions is one head more for each, without them.
        """
        query, key, value = self.project(x)
        query, key, value = self.psi(widen(query)), self.psi(widen(key)), widen(value)
        if self.longest > 0 and times.numel() > 0:
            refuse_longer(times + 1, self.longest, self.way_out)
        lengths = torch.ones(1, dtype=torch.int64, device=x.device)  # of no use here
        factors = self.factors(times, lengths, torch.ones_like(key[:1, :1, :1, :1]))
        queries: List[Tensor] = []
        keys: List[Tensor] = []
        for of_query, of_key in factors:
            queries.append(query if of_query is None else query * of_query)
            keys.append(key * of_key)
        queries_, keys_ = torch.cat(queries, dim=3), torch.cat(keys, dim=3)
        value = torch.cat((value, torch.ones_like(value[..., :1])), dim=3)
        if not self.reweighted:
            missing = queries_.size(3) - query.size(3)
            queries_ = torch.cat((queries_, F.pad(query, (0, missing))), dim=1)
            keys_ = torch.cat((keys_, F.pad(key, (0, missing))), dim=1)
            value = torch.cat((value, value), dim=1)
        return queries_, keys_, value

    def scores(self, query: Tensor, key: Tensor, lead: int) -> Tensor:
        """See `registry`."""
        return exact_product(query, key.transpose(2, 3))

    def weigh(self, scores: Tensor, bias: Tensor) -> Tensor:
        """See `registry`; they do not add up to 1 before `finish`."""
        return scores * (bias == 0).to(scores.dtype)

    def mix(self, weights: Tensor, value: Tensor) -> Tensor:
        """See `registry`."""
        return exact_product(weights, value)

    def finish(self, out: Tensor) -> Tensor:
        """See `registry`."""
        total, norm = out[:, : self.heads, :, :-1], out[:, -self.heads :, :, -1:]
        return self.leave(divide(total, norm).to(self.query.weight.dtype))

    def absorb(self, past: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """See `registry`: ``(B, H, d, d + 1)`` sums, to which keys and values are added."""
        return past + exact_product(key.transpose(2, 3), value)

    def recall(self, past: Tensor, query: Tensor) -> Tensor:
        """See `registry`."""
        return exact_product(query, past)

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
        if self.product == "auto" or (
            self.product == "train_left" and not self.training
        ):
            return query.size(2) <= query.size(3)
        return self.product != "right"

    def multipliers(
        self, frames: Tensor, lengths: Tensor
    ) -> List[Tuple[Optional[Tensor], Tensor]]:
        """R pairs of factors of queries and keys that broadcast with ``(B, H, T', D / H)``.

        None stands for a factor of 1.

        Args:
          frames: ``(B, T')`` or ``(1, T')`` numbers of the frames in their utterances, from 0.
          lengths: ``(B,)`` of the utterances.
        """
        raise NotImplementedError


@torch.jit.script_if_tracing
def refuse_longer(frames: Tensor, longest: int, way_out: str) -> Tensor:
    """The numbers of ``frames`` of utterances, none of which may be longer than its positions reach.

    Raises:
      UserError: naming the way out.
    """
    most = int(frames.max())
    if most > longest:
        raise UserError(
            f"an utterance of {most} frames is longer than {longest}; {way_out}"
        )
    return frames


def widen(x: Tensor) -> Tensor:
    """At least float32."""
    return x if x.dtype == torch.float64 else x.float()


def later(
    factors: List[Tuple[Optional[Tensor], Tensor]], ahead: int
) -> List[Tuple[Optional[Tensor], Tensor]]:
    """Factors of queries that come ``ahead`` frames later than their keys."""
    result: List[Tuple[Optional[Tensor], Tensor]] = []
    for of_query, of_key in factors:
        if of_query is not None:
            of_query = F.pad(of_query, (0, 0, ahead, 0))
        result.append((of_query, F.pad(of_key, (0, 0, 0, ahead))))
    return result


def exact_product(a: Tensor, b: Tensor) -> Tensor:
    """A matrix product outside of autocast: sums over thousands of frames need float32."""
    if torch.jit.is_scripting():
        return torch.matmul(a, b)
    with torch.autocast(a.device.type, enabled=False):
        return torch.matmul(a, b)

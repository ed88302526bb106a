"""Prob-sparse attention: only the queries whose attention is far from uniform attend."""

from dataclasses import dataclass
from typing import List, Optional, Tuple

import torch
from torch import Tensor

from icefall_attn.attention.dot_product import DotProductAttention
from icefall_attn.attention.contexts import AttentionContext
from icefall_attn.attention.registry import register


@register("prob_sparse")
class ProbSparseAttention(DotProductAttention):
    """Wang et al. 2021, "Efficient Conformer with prob-sparse attention", eq. 10 to 12.

    A query's sparsity is measured on a few sampled keys. The share ``r_sparse`` of an
    utterance's queries with the largest measure attends, to all keys; every other (lazy) query
    gives its own value. Choosing has no gradient. Layers come in groups of ``n_share`` that
    take the choice of their first one.

    Padding is never sampled, never chosen, and gives 0.
    """

    @dataclass
    class Config:
        """Options of ``prob_sparse``.

        Attributes:
          r_sparse: share of the queries that attend, above 0 and at most 1.
          r_sample: ``r_sample ln L`` keys of an utterance of L frames are sampled.
          n_share: layers that share one choice.
          measure: ``max_mean`` (eq. 11) or ``lse`` (eq. 10 on the sampled keys).
          selection: ``measure``, or ``random`` (the paper's baseline E2).
          head_mode: ``per_head`` chooses for each head; ``shared`` by the mean over heads.
          min_len: all queries of an utterance of fewer frames attend; choosing costs more than it
            saves there. A model is tied to it.
        """

        r_sparse: float = 0.5
        r_sample: float = 5.0
        n_share: int = 1
        measure: str = "max_mean"
        selection: str = "measure"
        head_mode: str = "per_head"
        min_len: int = 0

        def __post_init__(self):
            if not 0.0 < self.r_sparse <= 1.0:
                raise ValueError(
                    f"prob_sparse.r_sparse must be above 0 and at most 1, not {self.r_sparse}"
                )
            if not self.r_sample > 0.0:
                raise ValueError(
                    f"prob_sparse.r_sample must be above 0, not {self.r_sample}"
                )
            if self.n_share < 1:
                raise ValueError(
                    f"prob_sparse.n_share must be at least 1, not {self.n_share}"
                )
            if self.min_len < 0:
                raise ValueError(
                    f"prob_sparse.min_len must be 0 or more, not {self.min_len}"
                )
            choices = {
                "measure": ("max_mean", "lse"),
                "selection": ("measure", "random"),
                "head_mode": ("per_head", "shared"),
            }
            for name, known in choices.items():
                value = getattr(self, name)
                if value not in known:
                    raise ValueError(
                        f"prob_sparse.{name} must be one of {', '.join(known)}, not {value!r}"
                    )

    @staticmethod
    def objection(config: Config, encoder) -> Optional[str]:
        """See `registry`."""
        if encoder.context.kind != "full":
            return (
                "which of its queries attend depends on the whole utterance, and "
                f"context.kind={encoder.context.kind} hides some of it; use context.kind=full"
            )
        if config.n_share > encoder.num_layers:
            return f"n_share={config.n_share} layers, but there are num_layers={encoder.num_layers}"
        return None

    def __init__(
        self, dim: int, heads: int, dropout: float, config: Config, layer: int = 0
    ):
        super().__init__(dim, heads, dropout)
        self.min_len = config.min_len
        self.r_sparse, self.r_sample = config.r_sparse, config.r_sample
        self.by_max = config.measure == "max_mean"
        self.random = config.selection == "random"
        self.share_heads = config.head_mode == "shared"
        self.shares, self.chooses = config.n_share > 1, layer % config.n_share == 0
        self.group = layer // config.n_share

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        """x: ``(B, T', D)``. Returns ``(B, T', D)``."""
        query, key, value = self.project(x)
        query = query * self.scale
        if self.chooses:
            lengths = context.valid.sum(dim=1)
            index, active = self.choose(query.detach(), key.detach(), lengths)
            if self.shares:
                self.keep(context.shared, index, active)
        else:
            first = 2 * self.group
            index, active = context.shared[first], context.shared[first + 1]
        index = index.unsqueeze(3)
        place = index.expand(-1, query.size(1), -1, query.size(3))
        attended = self.attend(query.gather(2, place), key, value, context.bias)
        # places beyond an utterance's own number keep their value, like lazy queries
        place = index.expand(-1, value.size(1), -1, value.size(3))
        attended = torch.where(active.unsqueeze(3), attended, value.gather(2, place))
        out = value.scatter(2, place, attended)
        out = out.masked_fill(~context.valid[:, None, :, None], 0.0)
        return self.leave(out)

    def keep(self, shared: List[Tensor], index: Tensor, active: Tensor) -> None:
        """Leaves the choice to the other layers of the group.

        Each group has a place of its own, since layers may run again after all have run: when their
        activations are computed anew for the gradients.
        """
        first = 2 * self.group
        if len(shared) == first:
            shared.extend([index, active])
        else:
            shared[first], shared[first + 1] = index, active

    def choose(
        self, query: Tensor, key: Tensor, lengths: Tensor
    ) -> Tuple[Tensor, Tensor]:
        """Which queries attend; has no gradient, since its inputs are detached.

        Args:
          query: ``(B, H, T', D / H)``, scaled, detached.
          key: ``(B, H, T', D / H)``, detached.
          lengths: ``(B,)``.

        Returns:
          Indices ``(B, H, K)`` (H is 1 for shared heads), K the largest number in the batch, and
          which of them count, ``(B, 1, K)`` bool.
        """
        frames = torch.arange(query.size(2), device=query.device)
        # a shorter way to the same, which a trace must not take for every length
        if query.size(2) < self.min_len and not torch.jit.is_tracing():
            everyone = frames.expand(query.size(0), query.size(1), -1)
            return everyone, (frames < lengths.unsqueeze(1)).unsqueeze(1)
        count = torch.ceil(self.r_sparse * lengths.double() - 1e-9).long()
        count = torch.minimum(count.clamp(min=1), lengths)
        count = torch.where(lengths < self.min_len, lengths, count)
        if self.random:
            heads = 1 if self.share_heads else query.size(1)
            measure = self.lots(lengths, heads, frames)
        else:
            measure = self.measure(query.float(), key.float(), lengths)
            if self.share_heads:
                measure = measure.mean(dim=1, keepdim=True)
        padding = frames >= lengths[:, None, None]
        measure = measure.masked_fill(padding, -float("inf"))
        # a stable sort, because the order of ties differs between devices otherwise
        order = torch.sort(measure, dim=2, descending=True, stable=True)[1]
        width = count.max().clamp(min=1)
        index = order[:, :, :width]
        active = frames[:width] < count[:, None, None]
        return index, active

    def lots(self, lengths: Tensor, heads: int, frames: Tensor) -> Tensor:
        """Numbers for a random choice, ``(B, H, T')``: drawn in training.

        In evaluation they are scrambled from the utterance's length, the head and the frame alone, so
        that neither another pass nor other utterances of the batch change them.
        """
        if self.training:
            return torch.rand(
                [lengths.size(0), heads, frames.size(0)], device=frames.device
            )
        head = torch.arange(heads, device=frames.device).unsqueeze(1)
        mixed = (frames + 1) * 7919 + (head + 1) * 104729
        mixed = mixed + (lengths[:, None, None] + 1) * 1299709
        # steps of a linear congruential generator, each with its high bits mixed into the low ones
        for _ in range(3):
            mixed = (mixed * 1103515245 + 12345).bitwise_and(0x7FFFFFFF)
            mixed = mixed.bitwise_xor(mixed >> 15)
        return mixed.double()

    def measure(self, query: Tensor, key: Tensor, lengths: Tensor) -> Tensor:
        """How far each query is from attending uniformly, on sampled keys: ``(B, H, T')``."""
        sample, valid = self.sample(lengths)
        place = sample[:, None, :, None].expand(-1, key.size(1), -1, key.size(3))
        scores = torch.matmul(query, key.gather(2, place).transpose(2, 3))
        valid = valid[:, None, None, :]
        total = scores.masked_fill(~valid, 0.0).sum(dim=3)
        mean = total / valid.sum(dim=3).clamp(min=1)
        scores = scores.masked_fill(~valid, -float("inf"))
        if self.by_max:
            return scores.max(dim=3)[0] - mean
        return torch.logsumexp(scores, dim=3) - mean

    def sample(self, lengths: Tensor) -> Tuple[Tensor, Tensor]:
        """Positions of the sampled keys, one from each of equal parts of the utterance.

        In training at a random place of its part, otherwise in the middle.

        Args:
          lengths: ``(B,)``.

        Returns:
          ``(B, S)`` positions and which of them count, ``(B, S)`` bool.
        """
        length = lengths.clamp(min=1).double()
        # two at least: the measure of a single key is the same for all queries
        count = torch.ceil(self.r_sample * torch.log(length)).clamp(min=2.0)
        count = torch.minimum(count, length)
        slots = torch.arange(count.max(), device=lengths.device)
        within = torch.full(
            [lengths.size(0), slots.size(0)], 0.5, device=lengths.device
        )
        if self.training:
            within = torch.rand(within.shape, device=lengths.device)
        position = torch.floor((slots + within) * (length / count).unsqueeze(1))
        position = torch.minimum(position, (length - 1.0).unsqueeze(1))
        return position.long(), slots < count.unsqueeze(1)

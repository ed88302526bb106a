"""Normalisation: of the features that enter the encoder, and of frames inside it."""

from typing import NamedTuple, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from icefall_attn.nn.lengths import valid_mask


class NormState(NamedTuple):
    """What a stream's running mean is made of: sums ``(B, F)`` float64 of ``frames`` ``(B,)``."""

    total: Tensor
    frames: Tensor


class FeatureNorm(nn.Module):
    """Takes a mean from every feature bin.

    Padding, whatever it holds, becomes 0.

    Args:
      kind: ``utterance`` (the mean over all valid frames), ``running`` (over those so far and
        ``weight`` frames of the training speech's mean, for streams) or ``none``.
      feature_dim: bins F, for ``running``.
      weight: frames that the training speech's mean counts for.
    """

    KINDS = ("utterance", "running", "none")

    def __init__(
        self, kind: str = "utterance", feature_dim: int = 80, weight: float = 100.0
    ):
        super().__init__()
        self.kind, self.weight = kind, weight
        if kind == "running":
            self.register_buffer("mean", torch.zeros(feature_dim))
            self.register_buffer("batches", torch.tensor(0))

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """features: ``(B, T, F)``; lengths: ``(B,)``. Returns ``(B, T, F)``."""
        padding = ~valid_mask(lengths, features.size(1)).unsqueeze(2)
        features = features.masked_fill(padding, 0.0)
        if self.kind == "none":
            return features
        if self.kind == "running":
            if self.training:
                self._learn(features, lengths)
            return self.step(features, lengths, self.init_state(features.size(0)))[0]
        count = lengths.clamp(min=1).to(features.dtype)[:, None, None]
        mean = features.sum(dim=1, keepdim=True) / count
        return (features - mean).masked_fill(padding, 0.0)

    def init_state(self, batch_size: int) -> NormState:
        """Of streams that begin, for ``running``."""
        return NormState(
            self.mean.new_zeros([batch_size, self.mean.size(0)], dtype=torch.float64),
            torch.zeros(batch_size, dtype=torch.int64, device=self.mean.device),
        )

    def step(
        self, features: Tensor, lengths: Tensor, state: NormState
    ) -> Tuple[Tensor, NormState]:
        """The next frames ``(B, n, F)`` of streams, ``lengths`` ``(B,)`` of them valid."""
        padding = ~valid_mask(lengths, features.size(1)).unsqueeze(2)
        features = features.masked_fill(padding, 0.0)
        total = state.total.unsqueeze(1) + features.double().cumsum(dim=1)
        places = torch.arange(1, features.size(1) + 1, device=features.device)
        count = self.weight + (state.frames.unsqueeze(1) + places).double()
        mean = (total + self.weight * self.mean.double()) / count.unsqueeze(2)
        out = (features - mean.to(features.dtype)).masked_fill(padding, 0.0)
        last = state.total + features.double().sum(dim=1)
        return out, NormState(last, state.frames + lengths)

    def _learn(self, features: Tensor, lengths: Tensor) -> None:
        """Moves the training speech's mean towards a batch's, less with every batch."""
        mean = features.detach().sum(dim=(0, 1)) / lengths.sum().clamp(min=1)
        share = 1.0 / (self.batches + 1.0).clamp(max=1000.0)
        finite = torch.isfinite(mean).all()
        mean = torch.where(finite, mean.to(self.mean.dtype), self.mean)
        self.mean.lerp_(mean, share.to(self.mean.dtype))
        self.batches.add_(finite.long())


class FrameNorm(nn.LayerNorm):
    """Layer normalisation of each frame, with `MaskedBatchNorm`'s interface."""

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        """x: ``(B, T, D)``; valid: ``(B, T)`` bool, of no use here."""
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)


class MaskedBatchNorm(nn.BatchNorm1d):
    """Batch normalisation of channels whose statistics see valid frames only."""

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        """x: ``(B, T, D)``; valid: ``(B, T)`` bool. What padding becomes is of no use.

        A batch with a value that is not finite leaves the statistics as they were.
        """
        if not self.training:
            return self._by_running_statistics(x)
        rows = x[valid]
        if rows.size(0) < 2:  # no variance to speak of
            return self._by_running_statistics(x)
        mean, var = self.running_mean.clone(), self.running_var.clone()
        rows = F.batch_norm(
            rows, mean, var, self.weight, self.bias, True, self.momentum, self.eps
        )
        finite = torch.isfinite(mean).all() & torch.isfinite(var).all()
        self.running_mean.copy_(torch.where(finite, mean, self.running_mean))
        self.running_var.copy_(torch.where(finite, var, self.running_var))
        self.num_batches_tracked.add_(finite.long())
        return torch.zeros_like(x).index_put((valid,), rows)

    def _by_running_statistics(self, x: Tensor) -> Tensor:
        scale = self.weight * torch.rsqrt(self.running_var + self.eps)
        return x * scale + (self.bias - self.running_mean * scale)


class PerStream(nn.Module):
    """A norm for each of two streams, the halves of a batch."""

    def __init__(self, causal: nn.Module, non_causal: nn.Module):
        super().__init__()
        self.causal, self.non_causal = causal, non_causal

    def forward(self, x: Tensor) -> Tensor:
        """x: ``(2 B, T, D)``, the causal stream first. Returns ``(2 B, T, D)``."""
        causal, non_causal = x.chunk(2)
        return torch.cat((self.causal(causal), self.non_causal(non_causal)))


class MaskedPerStream(PerStream):
    """`PerStream` of norms that are called with a mask of valid frames."""

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        """x: ``(2 B, T, D)``; valid: ``(2 B, T)`` bool. Returns ``(2 B, T, D)``."""
        causal, non_causal = x.chunk(2)
        first, second = valid.chunk(2)
        return torch.cat(
            (self.causal(causal, first), self.non_causal(non_causal, second))
        )

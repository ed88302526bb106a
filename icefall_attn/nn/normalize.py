"""Normalisation: of the features that enter the encoder, and of frames inside it."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from icefall_attn.nn.lengths import valid_mask


class FeatureNorm(nn.Module):
    """Takes the utterance's own mean from every feature bin.

    Args:
      kind: ``utterance`` (mean over the valid frames) or ``none``.

    Padding, whatever it holds, becomes 0.
    """

    def __init__(self, kind: str = "utterance"):
        super().__init__()
        self.kind = kind

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """features: ``(B, T, F)``; lengths: ``(B,)``. Returns ``(B, T, F)``."""
        padding = ~valid_mask(lengths, features.size(1)).unsqueeze(2)
        features = features.masked_fill(padding, 0.0)
        if self.kind == "none":
            return features
        count = lengths.clamp(min=1).to(features.dtype)[:, None, None]
        mean = features.sum(dim=1, keepdim=True) / count
        return (features - mean).masked_fill(padding, 0.0)


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

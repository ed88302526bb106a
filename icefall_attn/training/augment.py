"""SpecAugment (Park et al. 2019) on the valid part of each utterance."""

import math
from dataclasses import dataclass

import torch
from lhotse.dataset import SpecAugment as LhotseSpecAugment
from torch import Tensor, nn


@dataclass
class SpecAugmentConfig:
    """Masking of features in training.

    Attributes:
      enabled: whether features are masked at all.
      time_warp: largest shift in frames of the time warp; 0 for none.
      freq_masks: masks over bins per utterance.
      freq_width: bins of a mask, at most.
      time_masks: masks over frames per utterance, at most.
      time_width: frames of a mask, at most.
      time_share: share of an utterance's frames that masks may cover.
      probability: share of utterances that are changed.
    """

    enabled: bool = True
    time_warp: int = 80
    freq_masks: int = 2
    freq_width: int = 27
    time_masks: int = 10
    time_width: int = 100
    time_share: float = 0.15
    probability: float = 0.9

    def __post_init__(self):
        if not 0.0 <= self.probability <= 1.0:
            raise ValueError(
                f"spec_augment.probability must be from 0 to 1, not {self.probability}"
            )
        if not 0.0 < self.time_share <= 1.0:
            raise ValueError(
                f"spec_augment.time_share must be above 0 and at most 1, not {self.time_share}"
            )
        smallest = {"freq_masks": 1, "freq_width": 2, "time_masks": 1, "time_width": 2}
        for name, least in smallest.items():
            if getattr(self, name) < least:
                raise ValueError(
                    f"spec_augment.{name} must be at least {least}, not {getattr(self, name)}; "
                    "spec_augment.enabled=false masks nothing"
                )


class SpecAugment(nn.Module):
    """Masks and warps; padding is never touched and never enters a mask's mean.

    Active in training mode only, and only while ``active`` (see `nn.dropout.begin_step`).
    """

    def __init__(self, config: SpecAugmentConfig):
        super().__init__()
        self.active = True
        self.augment = LhotseSpecAugment(
            time_warp_factor=config.time_warp or None,
            num_feature_masks=config.freq_masks,
            features_mask_size=config.freq_width,
            num_frame_masks=config.time_masks,
            frames_mask_size=config.time_width,
            max_frames_mask_fraction=config.time_share,
            p=config.probability,
        )
        # in a shorter utterance there is no frame for a mask, which lhotse does not survive
        self.shortest = math.ceil(1.0 / config.time_share) + 1

    @torch.no_grad()
    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """features: ``(B, T, F)``; lengths: ``(B,)``. Returns a new ``(B, T, F)``."""
        if not (self.training and self.active):
            return features
        features = features.clone()
        for row, length in zip(features, lengths.tolist()):
            if length >= self.shortest:
                row[:length] = self.augment(row[None, :length])[0]
        return features

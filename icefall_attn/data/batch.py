"""What a data loader hands to a model."""

from typing import List, NamedTuple, Union

import torch
from torch import Tensor


class Batch(NamedTuple):
    """Utterances of one step.

    Attributes:
      ids: names of the utterances.
      features: (B, T, F) float32, zeros past the end of each utterance.
      feature_lengths: (B,) int64, frames of 10 ms.
      texts: the reference transcripts.
      tokens: their token ids.
      durations: seconds of audio.
    """

    ids: List[str]
    features: Tensor
    feature_lengths: Tensor
    texts: List[str]
    tokens: List[List[int]]
    durations: List[float]

    @staticmethod
    def empty(feature_dim: int) -> "Batch":
        """A batch without utterances."""
        lengths = torch.zeros(0, dtype=torch.int64)
        return Batch([], torch.zeros(0, 0, feature_dim), lengths, [], [], [])

    def to(self, device: Union[str, torch.device]) -> "Batch":
        """The same batch with its tensors on ``device``."""
        return self._replace(
            features=self.features.to(device, non_blocking=True),
            feature_lengths=self.feature_lengths.to(device, non_blocking=True),
        )

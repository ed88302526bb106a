"""The features of a stream of samples, as they come."""

from typing import Optional

import torch
from torch import Tensor

from icefall_attn.data.features import FEATURE_DIM, feature_extractor
from icefall_attn.errors import UserError

WINDOW, SHIFT = 400, 160  # samples of 16 kHz
LEFT = (WINDOW - SHIFT) // 2  # that the first window reaches before the stream's begin


class StreamingFbank:
    """`compute_features` of one stream, piece by piece: the same frames for any pieces.

    A frame comes out when the last sample of its window has come in, 12.5 ms after its middle; the
    last one or two wait for `finish`, which mirrors the end as the batch form does. What is kept are
    fewer than 560 samples.

    Args:
      kind: of the features; only ``fbank`` can be computed as samples come.

    Raises:
      UserError: another kind.
    """

    def __init__(self, kind: str = "fbank"):
        if kind != "fbank":
            raise UserError(
                f"features={kind} need the whole utterance; a model that streams is trained with"
                " data.features=fbank"
            )
        self._extractor = feature_extractor().extractor
        self._samples = self._frames = 0  # so far
        self._context: Optional[Tensor] = (
            None  # (1, n), the beginning of the next window
        )
        self._pending = torch.zeros(0)

    def accept(self, samples: Tensor) -> Tensor:
        """(n,) float32 in [-1, 1], 16 kHz, to the (T, 80) frames that they complete."""
        self._samples += len(samples)
        self._pending = torch.cat((self._pending, samples))
        begun = 0 if self._context is None else self._context.size(1)
        if begun + len(self._pending) < WINDOW:
            return torch.zeros(0, FEATURE_DIM)
        return self._compute()

    def finish(self) -> Tensor:
        """The last (T, 80) frames; in less than 9 ms there is none."""
        frames = (self._samples + SHIFT // 2) // SHIFT
        missing = (frames - 1) * SHIFT + WINDOW - LEFT - self._samples
        if frames <= self._frames or missing > self._samples:
            return torch.zeros(0, FEATURE_DIM)
        known = self._pending
        if self._context is not None:
            known = torch.cat((self._context[0], known))
        self._pending = torch.cat((self._pending, known[-missing:].flip(0)))
        return self._compute()

    @torch.no_grad()
    def _compute(self) -> Tensor:
        features, self._context = self._extractor.online_inference(
            self._pending.unsqueeze(0), self._context
        )
        self._pending = torch.zeros(0)
        self._frames += features.size(1)
        return features[0]

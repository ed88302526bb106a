"""The one place that says what the features are: 80 log mel energies every 10 ms.

They are Kaldi's fbank (as in `kaldi-native-fbank`, which deployed models use) computed by lhotse:
windows of 25 ms, `snip_edges` off, 20 to 7600 Hz, no dither, samples in [-1, 1].
"""

from functools import lru_cache

import torch
from lhotse import Fbank, FbankConfig
from torch import Tensor

SAMPLE_RATE = 16000
FEATURE_DIM = 80
FRAME_SHIFT = 0.01


@lru_cache(maxsize=None)
def feature_extractor() -> Fbank:
    """Lhotse's extractor, for `CutSet.compute_and_store_features` and the like."""
    return Fbank(
        FbankConfig(
            sampling_rate=SAMPLE_RATE,
            num_filters=FEATURE_DIM,
            frame_shift=FRAME_SHIFT,
            snip_edges=False,
            dither=0.0,
            low_freq=20.0,
            high_freq=7600.0,
        )
    )


@torch.no_grad()
def compute_features(samples: Tensor) -> Tensor:
    """Features of one utterance.

    Args:
      samples: (samples,) float32, 16 kHz, in [-1, 1].

    Returns:
      (T, 80) float32, one frame for every 160 samples (rounded).
    """
    return feature_extractor().extract(samples, SAMPLE_RATE)

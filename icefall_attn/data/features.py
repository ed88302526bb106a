"""The one place that says what the features are, one frame every 10 ms.

``fbank``: 80 log mel energies. They are Kaldi's (as in `kaldi-native-fbank`, which deployed models
use) computed by lhotse: windows of 25 ms, `snip_edges` off, 20 to 7600 Hz, no dither, samples in
[-1, 1].

``fbank_pitch``: the same and Kaldi's three pitch features (Ghahremani et al. 2014), computed by
`kaldi-native-fbank`: warped correlation, which says how voiced a frame is, log pitch less its mean
over 1.5 s, and the slope of log pitch.
"""

from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Dict, Union

import numpy as np
import torch
from lhotse import Fbank, FbankConfig, FeatureExtractor
from lhotse.features.base import register_extractor
from torch import Tensor

from icefall_attn.errors import UserError

SAMPLE_RATE = 16000
FRAME_SHIFT = 0.01
FEATURE_DIM = 80
PITCH_DIM = 3
# Kinds of features and their dimensions.
FEATURE_DIMS = {"fbank": FEATURE_DIM, "fbank_pitch": FEATURE_DIM + PITCH_DIM}


def feature_dim(kind: str) -> int:
    """The dimension of a kind of features; an unknown kind is a `UserError`."""
    if kind not in FEATURE_DIMS:
        raise UserError(f"features={kind!r}; use one of {', '.join(FEATURE_DIMS)}")
    return FEATURE_DIMS[kind]


@lru_cache(maxsize=None)
def feature_extractor(kind: str = "fbank") -> FeatureExtractor:
    """Lhotse's extractor, for `Cut.compute_and_store_features` and the like."""
    feature_dim(kind)
    return FbankPitch() if kind == "fbank_pitch" else _fbank()


@torch.no_grad()
def compute_features(samples: Tensor, kind: str = "fbank") -> Tensor:
    """Features of one utterance.

    Args:
      samples: (samples,) float32, 16 kHz, in [-1, 1].
      kind: of `FEATURE_DIMS`.

    Returns:
      (T, F) float32, one frame for every 160 samples (rounded).
    """
    return torch.as_tensor(feature_extractor(kind).extract(samples, SAMPLE_RATE))


@dataclass
class FbankPitchConfig:
    """What of Kaldi's pitch tracker can be set.

    Attributes:
      min_f0, max_f0: Hz, where the pitch is looked for.
    """

    min_f0: float = 50.0
    max_f0: float = 400.0

    def to_dict(self) -> Dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(values: Dict[str, Any]) -> "FbankPitchConfig":
        return FbankPitchConfig(**values)


@register_extractor
class FbankPitch(FeatureExtractor):
    """``fbank`` and Kaldi's pitch side by side: (T, 83)."""

    name = "fbank-pitch"
    config_type = FbankPitchConfig

    @property
    def frame_shift(self) -> float:
        return FRAME_SHIFT

    def feature_dim(self, sampling_rate: int) -> int:
        return FEATURE_DIMS["fbank_pitch"]

    def extract(
        self, samples: Union[np.ndarray, Tensor], sampling_rate: int
    ) -> np.ndarray:
        """(samples,) or (1, samples) in [-1, 1] to (T, 83)."""
        samples = torch.as_tensor(samples).reshape(-1)
        fbank = _fbank().extract(samples, sampling_rate).numpy()
        pitch = self._pitch(samples.numpy(), sampling_rate)
        # The tracker's own rate rounds another way: a frame more or less at the end, and none at
        # all in less than a window.
        missing = max(0, len(fbank) - len(pitch))
        padding = ((0, missing), (0, 0))
        pitch = np.pad(pitch, padding, mode="edge" if len(pitch) else "constant")
        return np.concatenate([fbank, pitch[: len(fbank)]], axis=1)

    def _pitch(self, samples: np.ndarray, sampling_rate: int) -> np.ndarray:
        try:
            import kaldi_native_fbank as kaldi
        except ImportError:
            raise UserError(
                "features=fbank_pitch needs Kaldi's pitch: pip install kaldi-native-fbank>=1.23"
            )
        tracking = kaldi.PitchExtractionOptions()
        tracking.samp_freq = sampling_rate
        tracking.snip_edges = False
        tracking.min_f0, tracking.max_f0 = self.config.min_f0, self.config.max_f0
        # Kaldi's samples are those of 16 bits.
        return kaldi.compute_and_process_kaldi_pitch(
            tracking, kaldi.ProcessPitchOptions(), samples * 32768.0
        )


@lru_cache(maxsize=None)
def _fbank() -> Fbank:
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

"""Reading audio files."""

from functools import lru_cache
from pathlib import Path
from typing import Union

import soundfile
import torch
from lhotse.audio.backend import LibsndfileBackend, set_current_audio_backend
from lhotse.augmentation.resample import Resample
from torch import Tensor

from icefall_attn.data.features import SAMPLE_RATE
from icefall_attn.errors import UserError


def load_audio(path: Union[str, Path]) -> Tensor:
    """Reads any file that libsndfile knows (wav, flac, ogg, mp3, NIST sphere, ...).

    Several channels are averaged, other sample rates are resampled.

    Returns:
      (samples,) float32, 16 kHz, in [-1, 1].

    Raises:
      UserError: if the file is missing, damaged or empty.
    """
    if not Path(path).is_file():
        raise UserError(f"{path} is not a file")
    try:
        data, rate = soundfile.read(str(path), dtype="float32", always_2d=True)
    except (soundfile.LibsndfileError, RuntimeError) as error:
        raise UserError(f"{path} cannot be read as audio: {error}")
    samples = torch.from_numpy(data).mean(dim=1)
    if rate != SAMPLE_RATE:
        samples = resample(samples, rate, SAMPLE_RATE)
    if samples.numel() == 0:
        raise UserError(f"{path} holds no samples")
    if not torch.isfinite(samples).all():
        raise UserError(f"{path} holds samples that are not numbers")
    return samples


def resample(samples: Tensor, rate: int, new_rate: int) -> Tensor:
    """Windowed-sinc interpolation of (samples,) from one rate in Hz to another."""
    return _resampler(rate, new_rate)(samples.unsqueeze(0)).squeeze(0)


def use_libsndfile() -> None:
    """Makes lhotse read every file through libsndfile, in this process.

    By default lhotse wants the program `sph2pipe` for NIST sphere, which libsndfile reads as well.
    """
    set_current_audio_backend(LibsndfileBackend())


@lru_cache(maxsize=8)
def _resampler(rate: int, new_rate: int) -> Resample:
    # Its filter takes longer to make than to apply.
    return Resample(rate, new_rate)

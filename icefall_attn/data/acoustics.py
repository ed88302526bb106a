"""Noise and reverberation, put on training utterances while they are loaded.

What an utterance gets depends on the seed, the epoch and its name alone, not on the process that
loads it or the batch that it is in.
"""

import hashlib
import math
from typing import Optional, Sequence

import numpy as np
import torch
from lhotse.augmentation.utils import convolve1d
from lhotse.cut import Cut
from torch import Tensor

from icefall_attn.data.audio import use_libsndfile
from icefall_attn.data.features import SAMPLE_RATE, feature_extractor
from icefall_attn.data.index import IndexedCuts, Joined
from icefall_attn.errors import UserError


class Noise:
    """Noises that are mixed with speech at random signal-to-noise ratios.

    A noise begins at a random place and is repeated or cut to the length of the utterance.

    Args:
      paths: files of cuts, with features unless ``on_the_fly``.
      snr: lowest and highest ratio in dB.
      probability: share of the utterances that get noise.
      on_the_fly: mix audio; otherwise log mel energies.
    """

    def __init__(
        self,
        paths: Sequence[str],
        snr: Sequence[float],
        probability: float,
        on_the_fly: bool,
    ):
        if len(snr) != 2 or not snr[0] <= snr[1]:
            raise UserError(f"noise_snr is {snr}; give the lowest and the highest, dB")
        _check_probability("noise_probability", probability)
        self._cuts = _Clips(paths, on_the_fly)
        self._snr, self._probability = snr, probability

    def __call__(self, speech: Tensor, rng: np.random.Generator) -> Tensor:
        """``speech``, (samples,) or (T, 80), with noise over its whole length or as it was."""
        if rng.random() >= self._probability:
            return speech
        noise = self._cuts.draw(rng)
        places = rng.integers(len(noise)) + torch.arange(len(speech))
        mix = mix_samples if speech.ndim == 1 else mix_energies
        return mix(speech, noise[places % len(noise)], rng.uniform(*self._snr))


class Rooms:
    """Room impulse responses that speech is convolved with.

    Args:
      paths: files of cuts, each of one impulse response.
      probability: share of the utterances that are convolved.
    """

    def __init__(self, paths: Sequence[str], probability: float):
        _check_probability("rir_probability", probability)
        self._cuts = _Clips(paths, on_the_fly=True)
        self._probability = probability

    def __call__(self, speech: Tensor, rng: np.random.Generator) -> Tensor:
        """(samples,) speech in a random room or as it was."""
        if rng.random() >= self._probability:
            return speech
        return reverberate(speech, self._cuts.draw(rng))


class Distortion:
    """First the room, then the noise.

    Args:
      rooms, noise: what there is of the two.
      seed, epoch: decide, with the name of an utterance, what it gets.
    """

    def __init__(
        self, rooms: Optional[Rooms], noise: Optional[Noise], seed: int, epoch: int
    ):
        self._steps = [step for step in (rooms, noise) if step is not None]
        self._seed, self._epoch = seed, epoch

    def __call__(self, speech: Tensor, name: str) -> Tensor:
        """A new tensor of the same shape: samples or features of the utterance ``name``."""
        text = f"{self._seed} {self._epoch} {name}".encode()
        digest = hashlib.blake2b(text, digest_size=8).digest()
        rng = np.random.default_rng(int.from_bytes(digest, "big"))
        for step in self._steps:
            speech = step(speech, rng)
        return speech


def mix_samples(speech: Tensor, noise: Tensor, snr: float) -> Tensor:
    """(samples,) the sum, ``noise`` scaled to a ratio of the mean powers of ``snr`` dB.

    Where one of the two is silent there is no such ratio; then nothing is added.
    """
    powers = speech.square().mean(), noise.square().mean()
    if min(powers) == 0:
        return speech
    return speech + noise * (powers[0] / powers[1] / 10 ** (snr / 10)).sqrt()


def mix_energies(speech: Tensor, noise: Tensor, snr: float) -> Tensor:
    """(T, F) the sum of log mel energies at ``snr`` dB, columns past those of the noise unchanged.

    Speech and noise are taken as uncorrelated, so that their energies add up.
    """
    mel = speech[:, : noise.size(1)]
    ratio = _total(mel) - _total(noise) - snr / 10 * math.log(10)
    return torch.cat(
        [torch.logaddexp(mel, noise + ratio), speech[:, noise.size(1) :]], dim=1
    )


def reverberate(speech: Tensor, response: Tensor) -> Tensor:
    """(samples,) speech in a room: as loud and as long as it was, its direct sound where it was."""
    direct = int(response.abs().argmax())
    wet = convolve1d(speech, response)[direct : direct + len(speech)]
    power = wet.square().sum()
    return wet * (speech.square().sum() / power).sqrt() if power > 0 else speech


class _Clips:
    """Noises or impulse responses from files of cuts."""

    def __init__(self, paths: Sequence[str], on_the_fly: bool):
        self._where = ", ".join(paths)
        self._on_the_fly = on_the_fly
        self._cuts = Joined([IndexedCuts(path) for path in paths])
        if len(self._cuts) == 0:
            raise UserError(f"{self._where}: there is no noise or impulse response")
        # A user wants to hear of missing data now, not from a worker process.
        self._check(*self._cuts.read([0]))

    def draw(self, rng: np.random.Generator) -> Tensor:
        """(samples,) or (T, 80) of one of them, at random."""
        (cut,) = self._cuts.read([int(rng.integers(len(self._cuts)))])
        self._check(cut)
        try:
            if not self._on_the_fly:
                return torch.from_numpy(cut.load_features())
            use_libsndfile()
            return torch.from_numpy(cut.load_audio()[0])
        except Exception as error:  # of lhotse, libsndfile, lilcom, numpy or the system
            reason = (str(error) or repr(error)).splitlines()[0]
            raise UserError(f"{self._where}: cannot load {cut.id!r}: {reason}")

    def _check(self, cut: Cut) -> None:
        where = f"{self._where}: {cut.id!r}"
        bins = feature_extractor().feature_dim(SAMPLE_RATE)
        if self._on_the_fly:
            if not cut.has_recording or cut.sampling_rate != SAMPLE_RATE:
                raise UserError(f"{where} has no audio of {SAMPLE_RATE} Hz")
        elif not cut.has_features or cut.num_features != bins:
            raise UserError(
                f"{where} has no features of {bins} dimensions; prepare the noises with"
                " --features or set on_the_fly to true"
            )


def _total(energies: Tensor) -> Tensor:
    """The logarithm of the mean energy of a frame."""
    return energies.flatten().logsumexp(0) - math.log(len(energies))


def _check_probability(name: str, value: float) -> None:
    if not 0.0 <= value <= 1.0:
        raise UserError(f"{name} is {value}; give 0 to 1")

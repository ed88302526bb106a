"""The samples of an utterance: a voice between silences, in noise."""

import numpy as np
import torch

from icefall_attn.data.audio import resample
from icefall_attn.data.features import SAMPLE_RATE
from icefall_attn.synthesis.delivery import Utterance
from icefall_attn.synthesis.espeak import Synthesizer


def render(synthesizer: Synthesizer, utterance: Utterance) -> np.ndarray:
    """(samples,) float32 in [-1, 1] at 16 kHz: speech between silences, in noise."""
    speech = synthesizer.speak(
        utterance.spoken,
        utterance.accent,
        utterance.voice,
        utterance.words_per_minute,
        utterance.pitch,
        utterance.pitch_range,
        utterance.seed,
    )
    # a rate that has a large factor in common with the other one: cheap to resample
    rate = 250 * round(synthesizer.sample_rate * utterance.tempo / 250)
    if utterance.tempo == 1.0:
        rate = synthesizer.sample_rate
    speech = resample(torch.from_numpy(speech), rate, SAMPLE_RATE)
    speech = speech.numpy() / np.sqrt(np.mean(np.square(speech.numpy())))
    silences = (utterance.leading_silence, utterance.trailing_silence)
    signal = np.pad(speech, [round(s * SAMPLE_RATE) for s in silences])
    noise = make_noise(
        utterance.noise, len(signal), np.random.default_rng(utterance.seed)
    )
    signal = signal + noise * 10 ** (-utterance.snr / 20)
    signal = signal * 10 ** (utterance.level / 20)
    # The peaks of a loud utterance are held below full scale.
    return (signal * min(1.0, 0.99 / np.abs(signal).max())).astype(np.float32)


def make_noise(kind: str, length: int, rng: np.random.Generator) -> np.ndarray:
    """(length,) noise of mean power 1; `babble` has speech's spectrum and syllables."""
    size = 1 << length.bit_length()  # transforms of other sizes can be slow
    frequencies = np.fft.rfftfreq(size, 1 / SAMPLE_RATE)
    slope = {"white": 0.0, "pink": 0.5, "brown": 1.0, "babble": 0.8}[kind]
    shape = np.maximum(frequencies, 50.0) ** -slope
    if kind == "babble":
        shape = np.where(frequencies < 100, 0.0, shape)
    noise = np.fft.irfft(np.fft.rfft(rng.standard_normal(size)) * shape)[:length]
    if kind == "babble":
        time = np.arange(length) / SAMPLE_RATE
        rates, phases = rng.uniform(2, 6, 4), rng.uniform(0, 2 * np.pi, 4)
        noise *= 1.2 + np.sin(2 * np.pi * np.outer(time, rates) + phases).mean(axis=1)
    return noise / np.sqrt(np.mean(np.square(noise)))

"""Features are Kaldi's, as deployed recognisers compute them; audio of any format is read."""

import kaldi_native_fbank
import numpy as np
import pytest
import soundfile
import torch

from icefall_attn.data.audio import load_audio, resample
from icefall_attn.data.features import (
    FEATURE_DIM,
    FEATURE_DIMS,
    SAMPLE_RATE,
    compute_features,
)
from icefall_attn.errors import UserError


def kaldi_features(samples):
    options = kaldi_native_fbank.FbankOptions()
    options.frame_opts.samp_freq = SAMPLE_RATE
    options.frame_opts.dither = 0.0
    options.frame_opts.snip_edges = False
    options.mel_opts.num_bins = FEATURE_DIM
    options.mel_opts.low_freq = 20.0
    options.mel_opts.high_freq = 7600.0
    fbank = kaldi_native_fbank.OnlineFbank(options)
    fbank.accept_waveform(SAMPLE_RATE, samples.tolist())
    fbank.input_finished()
    frames = [fbank.get_frame(i) for i in range(fbank.num_frames_ready)]
    return torch.from_numpy(np.stack(frames))


def speech_like(length, rng):
    """A buzz of moving pitch, in syllables, rounded to 16 bits, with digital silence."""
    time = np.arange(length) / SAMPLE_RATE
    phase = 2 * np.pi * np.cumsum(120 + 30 * np.sin(2 * np.pi * time)) / SAMPLE_RATE
    voice = sum(np.sin(k * phase) / k for k in range(1, 40))
    voice *= np.maximum(0, np.sin(2 * np.pi * 3 * time)) * 0.2
    voice += 1e-4 * rng.standard_normal(length)
    voice[: length // 5] = 0.0
    return np.round(voice * 32767) / 32768


SIGNALS = {
    "loud noise": lambda n, rng: np.clip(0.3 * rng.standard_normal(n), -1, 1),
    "faint noise": lambda n, rng: 1e-3 * rng.standard_normal(n),
    "offset": lambda n, rng: 0.05 + 0.01 * rng.standard_normal(n),
    "speech": speech_like,
    "silence": lambda n, rng: np.zeros(n),
}


@pytest.mark.parametrize("kind", sorted(SIGNALS))
@pytest.mark.parametrize("length", [8000, 16000, 16079, 16080, 37818])
def test_equal_to_kaldi_native_fbank(kind, length):
    samples = SIGNALS[kind](length, np.random.default_rng(0)).astype(np.float32)
    ours = compute_features(torch.from_numpy(samples))
    theirs = kaldi_features(samples)
    assert ours.dtype == torch.float32
    assert ours.shape == theirs.shape == ((length + 80) // 160, FEATURE_DIM)
    assert (ours - theirs).abs().max() < 1e-3


def test_features_take_part_in_no_gradient():
    assert not compute_features(torch.randn(1600, requires_grad=True)).requires_grad


@pytest.mark.parametrize("name", ["a.wav", "a.flac", "a.sph"])
def test_load_audio_reads_formats(tmp_path, name):
    samples = np.round(np.sin(np.arange(4000) / 7) * 20000) / 32768
    kind = {"sph": "NIST"}.get(name[-3:])
    soundfile.write(tmp_path / name, samples, SAMPLE_RATE, "PCM_16", format=kind)
    loaded = load_audio(tmp_path / name)
    assert loaded.dtype == torch.float32 and loaded.shape == (4000,)
    assert np.abs(loaded.numpy() - samples).max() < 1e-6


def test_load_audio_averages_channels(tmp_path):
    channels = np.stack([np.full(800, 0.5), np.full(800, -0.25)], axis=1)
    soundfile.write(tmp_path / "a.wav", channels, SAMPLE_RATE)
    assert torch.allclose(
        load_audio(tmp_path / "a.wav"), torch.tensor(0.125), atol=1e-4
    )


@pytest.mark.parametrize("rate", [8000, 22050, 44100, 48000])
def test_load_audio_resamples(tmp_path, rate):
    tone = 0.5 * np.sin(2 * np.pi * 440 * np.arange(rate) / rate)
    soundfile.write(tmp_path / "a.wav", tone, rate)
    loaded = load_audio(tmp_path / "a.wav")
    assert loaded.shape == (SAMPLE_RATE,)
    expected = 0.5 * np.sin(2 * np.pi * 440 * np.arange(SAMPLE_RATE) / SAMPLE_RATE)
    inner = slice(200, -200)
    assert np.abs(loaded.numpy() - expected)[inner].max() < 5e-3


def test_resampling_removes_what_would_fold_back():
    tone = torch.sin(2 * torch.pi * 10000 * torch.arange(22050) / 22050)
    assert resample(tone, 22050, SAMPLE_RATE)[200:-200].abs().max() < 0.02


def test_load_audio_errors(tmp_path):
    with pytest.raises(UserError, match="missing.wav is not a file"):
        load_audio(tmp_path / "missing.wav")
    (tmp_path / "text.wav").write_text("not audio")
    with pytest.raises(UserError, match="text.wav cannot be read"):
        load_audio(tmp_path / "text.wav")
    soundfile.write(tmp_path / "empty.wav", np.zeros(0), SAMPLE_RATE)
    with pytest.raises(UserError, match="empty.wav holds no samples"):
        load_audio(tmp_path / "empty.wav")
    bad = np.array([0.0, np.nan], dtype=np.float32)
    soundfile.write(tmp_path / "nan.wav", bad, SAMPLE_RATE, "FLOAT")
    with pytest.raises(UserError, match="not numbers"):
        load_audio(tmp_path / "nan.wav")


def tone(hertz):
    """Two seconds of a buzz."""
    time = np.arange(2 * SAMPLE_RATE) / SAMPLE_RATE
    voice = sum(np.sin(2 * np.pi * hertz * k * time) / k for k in range(1, 20))
    return (0.1 * voice).astype(np.float32)


@pytest.mark.parametrize("length", [240, 399, 400, 16079, 16080, 37818])
def test_pitch_stands_beside_the_same_fbank(length):
    samples = torch.from_numpy(speech_like(length, np.random.default_rng(0))).float()
    both = compute_features(samples, "fbank_pitch")
    assert both.dtype == torch.float32 and torch.isfinite(both).all()
    assert both.shape == ((length + 80) // 160, FEATURE_DIMS["fbank_pitch"])
    assert torch.equal(both[:, :FEATURE_DIM], compute_features(samples))


def test_pitch_rises_by_the_step_of_a_tone():
    # Kaldi doubles log pitch, after it has taken off the mean around it.
    samples = torch.from_numpy(np.concatenate([tone(150), tone(200)]))
    pitch = compute_features(samples, "fbank_pitch")[:, FEATURE_DIM + 1]
    step = pitch[205] - pitch[195]
    assert float(step) == pytest.approx(2 * np.log(200 / 150), abs=0.05)
    # A tone that does not change is its own mean.
    inside = compute_features(torch.from_numpy(tone(200)), "fbank_pitch")[20:-20]
    assert inside[:, FEATURE_DIM + 1].abs().max() < 0.01
    # Kaldi adds noise of 0.05 to the slope.
    assert inside[:, FEATURE_DIM + 2].mean().abs() < 0.02


def test_a_tone_is_more_voiced_than_noise():
    noise = 0.1 * np.random.default_rng(0).standard_normal(2 * SAMPLE_RATE)
    voiced, unvoiced = (
        compute_features(torch.from_numpy(s).float(), "fbank_pitch")[
            10:-10, FEATURE_DIM
        ].mean()
        for s in (tone(200), noise)
    )
    # Kaldi's feature falls as the correlation of neighbouring periods rises.
    assert voiced < unvoiced - 0.5


def test_unknown_features_are_refused():
    with pytest.raises(UserError, match="features='mfcc'; use one of fbank, fbank_p"):
        compute_features(torch.zeros(1600), "mfcc")

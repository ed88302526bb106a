"""Noise at the wanted ratio, rooms that keep times and loudness; the same whoever loads."""

from dataclasses import replace

import numpy as np
import pytest
import soundfile
import torch
from lhotse import CutSet, MonoCut, Recording

from icefall_attn.data.acoustics import (
    Distortion,
    Noise,
    Rooms,
    mix_energies,
    mix_samples,
    reverberate,
)
from icefall_attn.data.features import compute_features, feature_extractor
from icefall_attn.data.loader import DataConfig, eval_loader, train_loader
from icefall_attn.data.manifests import write_manifest
from icefall_attn.data.sampling import Share
from icefall_attn.errors import UserError


def decaying(length, direct):
    """A room's response whose direct sound comes after ``direct`` samples."""
    response = 0.3 * torch.randn(length) * torch.exp(-torch.arange(length) / 300)
    response[:direct] = 0
    response[direct] = -2.0
    return response


@pytest.fixture
def rirs(tmp_path):
    """A file of two impulse responses."""
    cuts = []
    for number, direct in enumerate((0, 40)):
        path = tmp_path / f"rir{number}.wav"
        soundfile.write(path, 0.4 * decaying(2000, direct).numpy(), 16000)
        cuts.append(Recording.from_file(path).to_cut())
    write_manifest(CutSet.from_cuts(cuts), tmp_path / "rirs.jsonl.gz")
    return str(tmp_path / "rirs.jsonl.gz")


@pytest.fixture
def stored(corpus_dir):
    """Trains on stored features, with noise in all utterances."""
    return DataConfig(
        train_cuts=[str(corpus_dir / "train.jsonl.gz")],
        max_duration=8.0,
        num_buckets=4,
        num_workers=0,
        noise_cuts=[str(corpus_dir / "more.jsonl.gz")],
        noise_probability=1.0,
    )


@pytest.fixture
def heard(stored, corpus_dir, rirs):
    """Trains on audio, with noise and a room in all utterances."""
    return replace(
        stored,
        train_cuts=[str(corpus_dir / "plain.jsonl.gz")],
        on_the_fly=True,
        rir_cuts=[rirs],
        rir_probability=1.0,
    )


def utterances(loader):
    """Features by name; what is past the end of an utterance must be 0."""
    found = {}
    for batch in loader:
        for name, row, n in zip(batch.ids, batch.features, batch.feature_lengths):
            assert not row[n:].any()
            found[name] = row[:n].clone()
    return found


def same(a, b):
    """But for rounding: a loading process sums with one thread, training with all."""
    return a.keys() == b.keys() and all(
        torch.allclose(a[name], b[name], rtol=0, atol=1e-3) for name in a
    )


@pytest.mark.parametrize("snr", [-5.0, 0.0, 17.5])
def test_ratio_of_samples(snr):
    speech, noise = torch.randn(5000), 7 * torch.randn(5000)
    added = mix_samples(speech, noise, snr) - speech
    ratio = 10 * torch.log10(speech.square().sum() / added.square().sum())
    assert abs(ratio - snr) < 1e-3
    assert torch.corrcoef(torch.stack([added, noise]))[0, 1] > 0.9999


def test_silence_stays():
    noise, silence = torch.randn(100), torch.zeros(100)
    assert torch.equal(mix_samples(silence, noise, 5.0), silence)
    assert torch.equal(mix_samples(noise, silence, 5.0), noise)


@pytest.mark.parametrize("snr", [-5.0, 0.0, 17.5])
def test_ratio_of_energies(snr):
    speech, noise = torch.randn(50, 80).double(), 3 + torch.randn(50, 80).double()
    mixed = mix_energies(speech, noise, snr)
    added = mixed.exp().sum() - speech.exp().sum()
    assert abs(10 * torch.log10(speech.exp().sum() / added) - snr) < 1e-6
    lhotse = feature_extractor()
    scale = speech.exp().sum() / noise.exp().sum() / 10 ** (snr / 10)
    expected = lhotse.mix(speech.numpy(), noise.numpy(), float(scale))
    assert np.allclose(mixed.numpy(), expected)


def test_energies_of_the_sum_of_samples():
    """What is mixed as energies is close to what the mixed audio gives."""
    time = torch.arange(32000) / 16000
    speech = 0.1 * torch.sin(800 * time) * torch.sin(3 * time) + 0.01 * torch.randn(
        32000
    )
    noise = 0.02 * torch.randn(32000)
    a, b = compute_features(speech), compute_features(noise)
    snr = float(10 * torch.log10(a.exp().sum() / b.exp().sum()))
    difference = mix_energies(a, b, snr) - compute_features(speech + noise)
    assert difference.abs().mean() < 0.35 and difference.mean().abs() < 0.1


def test_columns_that_are_no_energies_stay():
    speech, noise = torch.randn(50, 83), torch.randn(50, 80)
    mixed = mix_energies(speech, noise, 3.0)
    assert torch.equal(mixed[:, :80], mix_energies(speech[:, :80], noise, 3.0))
    assert torch.equal(mixed[:, 80:], speech[:, 80:])


@pytest.mark.parametrize("direct", [0, 123])
def test_reverberation(direct):
    speech, response = torch.randn(4000), decaying(1500, direct)
    wet = reverberate(speech, response)
    expected = np.convolve(speech.numpy(), response.numpy())[direct : direct + 4000]
    expected *= np.sqrt(speech.square().sum().item() / (expected**2).sum())
    assert np.allclose(wet.numpy(), expected, atol=1e-4)
    # A click stays where it was.
    click = torch.zeros(4000)
    click[700] = 1.0
    assert reverberate(click, response).abs().argmax() == 700
    assert torch.equal(reverberate(torch.zeros(9), response), torch.zeros(9))


def test_short_noise_is_repeated(tmp_path):
    samples = np.random.default_rng(0).standard_normal(100) * 0.1
    soundfile.write(tmp_path / "noise.wav", samples, 16000)
    recording = Recording.from_file(tmp_path / "noise.wav")
    path = tmp_path / "noise.jsonl.gz"
    write_manifest(CutSet.from_cuts([recording.to_cut()]), path)
    speech = torch.randn(950)
    starts = set()
    for seed in range(20):
        rng = np.random.default_rng(seed)
        added = Noise([str(path)], (0.0, 0.0), 1.0, True)(speech, rng) - speech
        assert torch.allclose(added[:800], added[100:900], atol=1e-5)
        assert added.abs().min() > 0
        starts.add(int(added[:100].abs().argmax()))
    assert len(starts) > 10


def test_share_of_the_utterances(corpus_dir):
    paths = [str(corpus_dir / "more.jsonl.gz")]
    speech = torch.randn(2000)
    distortion = Distortion(None, Noise(paths, (10.0, 20.0), 0.3, True), 0, 1)
    changed = [not torch.equal(distortion(speech, f"u{i}"), speech) for i in range(400)]
    assert 0.2 < np.mean(changed) < 0.4


@pytest.mark.parametrize("kind", ["stored", "heard"])
def test_distortion_depends_on_seed_epoch_and_name_alone(kind, request, tokenizer):
    cfg = request.getfixturevalue(kind)
    first = utterances(train_loader(cfg, tokenizer, 2, 7))
    assert len(first) == 60
    for change in ({"num_workers": 2}, {"max_duration": 3.0}, {"num_buckets": 1}):
        again = utterances(train_loader(replace(cfg, **change), tokenizer, 2, 7))
        assert same(again, first)
    resumed = utterances(train_loader(cfg, tokenizer, 2, 7, share=Share(turns=3)))
    assert resumed and same(resumed, {name: first[name] for name in resumed})
    for epoch, seed in ((3, 7), (2, 8)):
        other = utterances(train_loader(cfg, tokenizer, epoch, seed))
        assert not any(torch.equal(other[name], first[name]) for name in first)


@pytest.mark.parametrize("kind", ["stored", "heard"])
def test_evaluation_stays_clean(kind, request, tokenizer):
    cfg = request.getfixturevalue(kind)
    clean = utterances(
        train_loader(replace(cfg, noise_cuts=[], rir_cuts=[]), tokenizer, 1, 0)
    )
    assert same(utterances(eval_loader(cfg.train_cuts, cfg, tokenizer)), clean)
    noisy = utterances(train_loader(cfg, tokenizer, 1, 0))
    assert not any(torch.equal(noisy[name], clean[name]) for name in clean)
    assert all(noisy[name].shape == clean[name].shape for name in clean)
    never = replace(cfg, noise_probability=0.0, rir_probability=0.0)
    assert same(utterances(train_loader(never, tokenizer, 1, 0)), clean)


def test_kept_features_stay_clean(stored, tokenizer):
    kept = replace(stored, cache=True, min_utterance=0.12)
    for epoch in (1, 2):
        found = utterances(train_loader(kept, tokenizer, epoch, 0))
        assert same(found, utterances(train_loader(stored, tokenizer, epoch, 0)))


def test_options_that_do_not_fit(stored, heard, corpus_dir, tokenizer):
    plain = str(corpus_dir / "plain.jsonl.gz")
    for cfg, change, message in (
        (stored, {"noise_cuts": [plain]}, "has no features of 80 dimensions"),
        (stored, {"noise_cuts": ["gone.jsonl.gz"]}, "gone.jsonl.gz is missing"),
        (stored, {"noise_snr": [20.0, 10.0]}, "noise_snr is"),
        (stored, {"noise_snr": [20.0]}, "noise_snr is"),
        (stored, {"noise_probability": 1.5}, "noise_probability is 1.5"),
        (stored, {"rir_cuts": [plain]}, "set on_the_fly to true"),
        (heard, {"rir_probability": -1.0}, "rir_probability is -1.0"),
        (heard, {"cache": True}, "cache=true"),
    ):
        with pytest.raises(UserError, match=message):
            train_loader(replace(cfg, **change), tokenizer, 1, 0)


@pytest.mark.parametrize("workers", [0, 2])
def test_lost_noise_is_told_in_one_line(heard, tokenizer, tmp_path, workers):
    path = tmp_path / "gone.wav"
    soundfile.write(path, np.ones(1000), 16000)
    cut = MonoCut("gone", 0.0, 0.05, 0, recording=Recording.from_file(path))
    write_manifest(CutSet.from_cuts([cut]), tmp_path / "noise.jsonl.gz")
    path.unlink()
    cfg = replace(heard, noise_cuts=[str(tmp_path / "noise.jsonl.gz")])
    with pytest.raises(UserError, match="cannot load 'gone'") as caught:
        utterances(train_loader(replace(cfg, num_workers=workers), tokenizer, 1, 0))
    assert "\n" not in str(caught.value)


def test_rooms_want_their_rate(tmp_path):
    soundfile.write(tmp_path / "rir.wav", np.ones(100), 8000)
    cut = Recording.from_file(tmp_path / "rir.wav").to_cut()
    write_manifest(CutSet.from_cuts([cut]), tmp_path / "rir.jsonl.gz")
    with pytest.raises(UserError, match="no audio of 16000 Hz"):
        Rooms([str(tmp_path / "rir.jsonl.gz")], 1.0)

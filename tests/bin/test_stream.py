"""The program that recognises speech as it comes."""

import io
import json
from types import SimpleNamespace

import pytest
import soundfile
import torch

from icefall_attn.attention.contexts import Causal, ContextConfig
from icefall_attn.bin import stream
from icefall_attn.encoder.conformer import ConformerConfig
from icefall_attn.errors import UserError
from icefall_attn.transducer.model import Transducer, TransducerConfig
from icefall_attn.transducer.predictor import PredictorConfig


@pytest.fixture
def streamable(experiment):
    torch.manual_seed(0)
    encoder = ConformerConfig(
        dim=16, heads=2, num_layers=1, feed_forward_dim=32, kernel_size=5,
        subsampling_channels=4, context=ContextConfig("causal", causal=Causal()),
    )  # fmt: skip
    config = TransducerConfig(encoder, PredictorConfig(dim=16), 16, "running")
    config.vocab_size = experiment.tokenizer.vocab_size
    experiment.model = Transducer(config).eval()
    with torch.no_grad():
        for parameter in experiment.model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return experiment


@pytest.fixture
def noise():
    samples = torch.randn(32000, generator=torch.Generator().manual_seed(0)) * 3000
    return samples.clamp(-32000, 32000).to(torch.int16).numpy()


def run(monkeypatch, capsys, *options, data=None):
    if data is not None:
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(data)))
    stream.main(["--exp-dir", "exp", *options])
    return capsys.readouterr().out.splitlines()


def test_file_and_standard_input_give_the_same(
    streamable, noise, tmp_path, monkeypatch, capsys
):
    path = tmp_path / "noise.wav"
    soundfile.write(path, noise, 16000, subtype="PCM_16")
    from_file = run(monkeypatch, capsys, str(path))
    assert from_file and from_file[0]
    piped = noise.tobytes() + b"x"  # half a sample
    assert run(monkeypatch, capsys, data=piped) == from_file
    lines = run(monkeypatch, capsys, "--json", "--piece", "100", data=piped)
    changes = [json.loads(line) for line in lines]
    assert [c["text"] for c in changes if c["final"]] == from_file
    assert len(changes) > 3 and not changes[0]["final"]
    assert len(changes[0]["text"]) < len(from_file[0])


def test_what_was_said_before_a_break_is_shown(streamable, noise, monkeypatch, capsys):
    """Ctrl-C ends a microphone's stream; it is finished as if the speaker had stopped there."""
    whole = run(monkeypatch, capsys, data=noise[:16000].tobytes())

    class Broken(io.BytesIO):
        def read(self, size=-1):
            data = super().read(size)
            if not data:
                raise KeyboardInterrupt
            return data

    microphone = SimpleNamespace(buffer=Broken(noise[:16000].tobytes()))
    monkeypatch.setattr("sys.stdin", microphone)
    assert run(monkeypatch, capsys) == whole != []


def test_a_file_as_fast_as_it_was_spoken(
    streamable, noise, tmp_path, monkeypatch, capsys
):
    path = tmp_path / "noise.wav"
    soundfile.write(path, noise, 16000, subtype="PCM_16")
    clock, waits = [100.0], []

    def sleep(seconds):
        waits.append(seconds)
        clock[0] += seconds

    monkeypatch.setattr(
        stream, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=sleep)
    )
    expected = run(monkeypatch, capsys, str(path))
    assert waits == []
    assert run(monkeypatch, capsys, "--real-time", str(path)) == expected
    assert waits == pytest.approx([0.32] * 6 + [0.08]) and clock[0] == pytest.approx(
        102
    )


def test_mistakes_are_one_line(streamable, monkeypatch, capsys):
    def refused(words, *options, data=b""):
        with pytest.raises(UserError, match=words):
            run(monkeypatch, capsys, *options, data=data)

    refused("no.wav is not a file", "no.wav")
    refused("--piece must be 10 ms or more, not 5", "--piece", "5")
    refused("endpoint.pause must be 0 or more", "--endpoint.pause", "-1")
    refused("standard input is an audio file", data=b"RIFF" + bytes(100))
    assert run(monkeypatch, capsys, data=b"") == []

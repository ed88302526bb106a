"""The transcription program on real audio files and a model that says what it is told."""

import json

import numpy as np
import pytest
import soundfile
import torch

from icefall_attn.bin import transcribe
from icefall_attn.errors import UserError


@pytest.fixture
def heard(experiment, monkeypatch):
    """Feature lengths per batch; the model says A for every full second of audio."""
    batches = []

    def encode(features, lengths):
        batches.append(lengths.tolist())
        out = torch.zeros(len(lengths), int(lengths.max()) // 100, 5)
        out[..., 3] = 50.0
        return out, lengths // 100

    monkeypatch.setattr(experiment.model, "encode", encode)
    return batches


def write(path, seconds, rate=16000, channels=1):
    time = np.arange(int(seconds * rate)) / rate
    tone = 0.3 * np.sin(2 * np.pi * 440 * time).astype(np.float32)
    soundfile.write(path, np.stack([tone] * channels, axis=1), rate)
    return str(path)


def run(*arguments):
    transcribe.main(["--exp-dir", "exp", *arguments])


def test_rates_channels_and_formats(tmp_path, heard, capsys):
    files = [
        write(tmp_path / "a.wav", 2.0),
        write(tmp_path / "b.flac", 3.0, rate=8000),
        write(tmp_path / "c.wav", 1.0, rate=44100, channels=2),
    ]
    run(*files)
    assert capsys.readouterr().out.splitlines() == [
        f"{files[0]}\tA A",
        f"{files[1]}\tA A A",
        f"{files[2]}\tA",
    ]
    assert heard == [[200, 300, 100]]


def test_bad_files_do_not_stop_the_others(tmp_path, heard, capsys):
    broken = tmp_path / "broken.wav"
    broken.write_bytes(b"this is not audio")
    short = write(tmp_path / "short.wav", 0.05)
    good = write(tmp_path / "good.wav", 1.0)
    with pytest.raises(UserError, match="3 of 4 files could not be transcribed"):
        run(str(broken), str(tmp_path / "nowhere.wav"), good, short)
    captured = capsys.readouterr()
    assert captured.out == f"{good}\tA\n"
    errors = captured.err.splitlines()
    assert len(errors) == 3
    assert all(line.startswith("error: ") for line in errors)
    assert "broken.wav" in errors[0]
    assert "nowhere.wav" in errors[1]
    assert "short.wav is too short: 0.050 s" in errors[2]


def test_batches_hold_max_duration(tmp_path, heard, capsys):
    seconds = [1, 1, 2, 1, 9, 1]
    files = [write(tmp_path / f"{i}.wav", s) for i, s in enumerate(seconds)]
    run("--max-duration", "5", *files)
    assert heard == [[100, 100], [200, 100], [900], [100]]
    texts = [line.split("\t")[1] for line in capsys.readouterr().out.splitlines()]
    assert texts == [" ".join("A" * s) for s in seconds]


def test_json(tmp_path, heard, capsys):
    file = write(tmp_path / "a.wav", 2.0)
    run("--json", "--search.method", "modified_beam_search", file)
    line = json.loads(capsys.readouterr().out)
    assert line["id"] == file
    assert line["hyps"][0]["text"] == "A A"
    assert line["hyps"][0]["times"] == [0.0, 0.04]


def test_bad_options_are_one_line(tmp_path):
    with pytest.raises(UserError, match="max-duration must be above 0, not -1"):
        run("--max-duration", "-1", "a.wav")
    with pytest.raises(UserError, match="a file name inside --exp-dir, not '../x.pt'"):
        run("--checkpoint", "../x.pt", "a.wav")
    with pytest.raises(UserError, match="leave out --avg 3"):
        run("--checkpoint", "x.pt", "--avg", "3", "a.wav")
    with pytest.raises(UserError) as error:
        run("--no-such-option", "1", "a.wav")
    assert "\n" not in str(error.value)


def test_exit_code_of_a_bad_file(tmp_path, heard, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["x", "--exp-dir", "exp", str(tmp_path / "no.wav")])
    with pytest.raises(SystemExit) as stop:
        transcribe.cli()
    assert stop.value.code not in (0, None)

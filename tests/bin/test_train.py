"""The training program as a process: mistakes in one line, SIGKILL and resume."""

import os
import signal
import subprocess
import sys
import time

import pytest
import torch
import yaml

from icefall_attn.training.checkpoint import load_checkpoint, load_experiment

PROGRAM = [sys.executable, "-m", "icefall_attn.bin.train"]


@pytest.fixture
def options(corpus_dir, tokenizer, tmp_path):
    """A tiny run, as options of the program."""
    tokenizer.save(tmp_path / "lang")
    config = {
        "data": {
            "train_cuts": [str(corpus_dir / "train.jsonl.gz")],
            "valid_cuts": [str(corpus_dir / "more.jsonl.gz")],
            "lang_dir": str(tmp_path / "lang"),
            "max_duration": 6.0,
            "num_buckets": 3,
            "num_workers": 1,
        },
        "model": {
            "encoder": {
                "dim": 8, "heads": 2, "num_layers": 1, "feed_forward_dim": 16,
                "kernel_size": 3, "subsampling_channels": 4,
            },
            "predictor": {"dim": 8},
            "joiner_dim": 8,
        },
        "optim": {"warm_steps": 5},
        "train": {"max_steps": 60, "save_every": 5, "log_every": 5, "tensorboard": False},
    }  # fmt: skip
    path = tmp_path / "train.yaml"
    path.write_text(yaml.safe_dump(config))
    return ["--config", str(path)]


def environ():
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def train(*options):
    return subprocess.run(
        [*PROGRAM, *options], env=environ(), capture_output=True, text=True, timeout=300
    )


def test_sigkill_and_resume_equals_undisturbed(options, tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    done = train(*options, "--exp-dir", str(whole))
    assert done.returncode == 0, done.stderr
    process = subprocess.Popen(
        [*PROGRAM, *options, "--exp-dir", str(killed)],
        env=environ(),
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    while not (killed / "checkpoint-15.pt").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    step = load_checkpoint(killed / "last.pt")["progress"]["step"]
    assert 15 <= step < 60
    resumed = train(*options, "--exp-dir", str(killed))
    assert resumed.returncode == 0, resumed.stderr
    assert "resuming from" in resumed.stderr
    one, other = load_checkpoint(whole / "last.pt"), load_checkpoint(killed / "last.pt")
    for name, value in one["model"].items():
        assert torch.equal(value, other["model"][name]), name
    assert one["random"] == other["random"]
    # and what is there is enough to decode with
    experiment = load_experiment(str(killed), avg=2)
    assert experiment.model.vocab_size == experiment.tokenizer.vocab_size
    assert not experiment.model.training


@pytest.mark.parametrize(
    "more, words",
    [
        (["--train.max_step", "3"], "--train.max_step"),
        (["--data.lang_dir", "/nowhere"], "/nowhere"),
        (["--data.train_cuts", "[/nowhere.jsonl.gz]"], "/nowhere.jsonl.gz"),
        (["--train.device", "cuda:7"], "cuda:7"),
        (["--optim.schedule", "cosine", "--train.max_steps", "0"], "train.max_steps"),
        (["--model.vocab_size", "7"], "model.vocab_size=7"),
    ],
)
def test_mistakes_are_one_line(options, tmp_path, more, words):
    result = train(*options, "--exp-dir", str(tmp_path / "exp"), *more)
    assert result.returncode == 1
    errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and words in errors[0]
    assert "Traceback" not in result.stderr
    assert not list((tmp_path / "exp").glob("*.pt"))


def test_an_exp_dir_that_cannot_be_made_is_named(options, tmp_path):
    (tmp_path / "file").write_text("")
    result = train(*options, "--exp-dir", str(tmp_path / "file" / "exp"))
    assert result.returncode == 1 and "Traceback" not in result.stderr
    assert str(tmp_path / "file") in result.stderr.splitlines()[-1]

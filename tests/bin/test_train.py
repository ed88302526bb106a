"""The training program as a process: mistakes in one line, SIGKILL and resume."""

import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from icefall_attn.training.checkpoint import load_checkpoint
from icefall_attn.training.experiment import load_experiment

PROGRAM = [sys.executable, "-m", "icefall_attn.bin.train"]


def environ():
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def train(*options):
    return subprocess.run(
        [*PROGRAM, *options], env=environ(), capture_output=True, text=True, timeout=300
    )


def test_sigkill_and_resume_equals_undisturbed(train_options, tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    done = train(*train_options, "--exp-dir", str(whole))
    assert done.returncode == 0, done.stderr
    process = subprocess.Popen(
        [*PROGRAM, *train_options, "--exp-dir", str(killed)],
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
    resumed = train(*train_options, "--exp-dir", str(killed))
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
def test_mistakes_are_one_line(train_options, tmp_path, more, words):
    result = train(*train_options, "--exp-dir", str(tmp_path / "exp"), *more)
    assert result.returncode == 1
    errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and words in errors[0]
    assert "Traceback" not in result.stderr
    assert not list((tmp_path / "exp").glob("*.pt"))


def test_an_exp_dir_that_cannot_be_made_is_named(train_options, tmp_path):
    (tmp_path / "file").write_text("")
    # not even root may make a directory in the second
    for path in (tmp_path / "file" / "exp", "/sys/kernel/exp"):
        result = train(*train_options, "--exp-dir", str(path))
        assert result.returncode == 1 and "Traceback" not in result.stderr
        assert str(path) in result.stderr.splitlines()[-1]

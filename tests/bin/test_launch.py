"""Several processes on this machine: their end, their errors, their signals."""

import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from icefall_attn.training.checkpoint import load_checkpoint

LAUNCH = [sys.executable, "-m", "icefall_attn.bin.launch"]
TRAIN = [sys.executable, "-m", "icefall_attn.bin.train"]


def launch(*command, processes=2, **options):
    return subprocess.run(
        [*LAUNCH, "--processes", str(processes), *command],
        capture_output=True,
        text=True,
        timeout=120,
        **options,
    )


def program(text):
    return [sys.executable, "-c", "import os, sys, time\n" + text]


def test_each_process_knows_its_place(tmp_path):
    names = "RANK LOCAL_RANK WORLD_SIZE MASTER_ADDR MASTER_PORT OMP_NUM_THREADS"
    text = f"line = ' '.join(os.environ[n] for n in {names.split()!r})\n"
    text += "os.write(1, (line + '\\n').encode())"
    done = launch(
        *program(text), processes=3, env={**os.environ, "OMP_NUM_THREADS": "7"}
    )
    assert done.returncode == 0 and done.stderr == ""
    lines = sorted(line.split() for line in done.stdout.splitlines())
    assert [line[:3] for line in lines] == [[str(r), str(r), "3"] for r in range(3)]
    assert len({tuple(line[3:]) for line in lines}) == 1 and lines[0][5] == "2"


@pytest.mark.parametrize(
    "text, code, words",
    [
        # the others end for want of the one that failed
        ("sys.exit('error: no data' if os.environ['RANK'] == '1' else 76)", 1, "error: no data"),
        # all have the same to say
        ("sys.exit('error: no data')", 1, "error: no data"),
        ("os.kill(os.getpid(), 9) if os.environ['RANK'] == '1' else sys.exit(76)", 137,
         "error: process 1 of the training was killed by SIGKILL, perhaps for want of memory;"
         " run the same command again to go on"),
        ("sys.exit(75)", 75, ""),
        ("sys.exit(76)", 76, ""),
    ],
)  # fmt: skip
def test_the_first_failure_is_told_once(text, code, words):
    done = launch(*program(text))
    assert done.returncode == code
    assert done.stderr == (words + "\n" if words else "")


def test_nobody_is_left_waiting(monkeypatch):
    from icefall_attn.bin import launch as module

    monkeypatch.setattr(module, "GRACE", 0.5)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    text = "time.sleep(60 if os.environ['RANK'] == '0' else 0); sys.exit(3)"
    began = time.monotonic()
    assert module.main(["--processes", "2", *program(text)]) == 3
    assert time.monotonic() - began < 30


def test_mistakes_are_told():
    for words in (["--processes", "0", "true"], ["--processes", "2"]):
        done = subprocess.run([*LAUNCH, *words], capture_output=True, text=True)
        assert done.returncode == 2 and "error: " in done.stderr.splitlines()[-1]


def children(process):
    path = f"/proc/{process.pid}/task/{process.pid}/children"
    return [int(pid) for pid in open(path).read().split()]


def wait_for(path, process):
    deadline = time.monotonic() + 100
    while not path.exists() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.02)
    assert path.exists()


@pytest.mark.parametrize("disturbance", ["SIGKILL of one", "SIGUSR1 to all"])
def test_disturbed_and_resumed_equals_undisturbed(
    train_options, tmp_path, tmp_path_factory, disturbance
):
    """The real program, two processes; also that the disturbed run says so and leaves none behind."""
    more = ["--train.max_steps", "24", "--train.save_every", "4"]

    def command(exp):
        return [*TRAIN, *train_options, *more, "--exp-dir", str(exp)]

    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    exp = tmp_path / "exp"
    process = subprocess.Popen(
        [*LAUNCH, "--processes", "2", *command(exp)],
        env=environ,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(exp / "checkpoint-4.pt", process)
    pids = children(process)
    if disturbance == "SIGKILL of one":
        os.kill(pids[1], signal.SIGKILL)
    else:
        process.send_signal(signal.SIGUSR1)
    _, errors = process.communicate(timeout=60)
    step = load_checkpoint(exp / "last.pt")["progress"]["step"]
    assert 4 <= step < 24
    if disturbance == "SIGKILL of one":
        assert process.returncode == 137
        assert errors.splitlines()[-1].startswith(
            "error: process 1 of the training was"
        )
    else:
        assert process.returncode == 75
        assert "the same command goes on from there" in errors
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    done = launch(*command(exp), env=environ)
    assert done.returncode == 0, done.stderr
    assert f"step {step}" in done.stderr and list((exp / "log").glob("*-rank-1"))
    undisturbed = tmp_path / "undisturbed"
    assert launch(*command(undisturbed), env=environ).returncode == 0
    one, other = (load_checkpoint(d / "last.pt") for d in (exp, undisturbed))
    assert one["progress"]["step"] == other["progress"]["step"] == 24
    for name, value in one["model"].items():
        assert torch.equal(value, other["model"][name]), name
    assert one["random"] == other["random"]

"""What --launcher slurm would submit, and what it refuses."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from toy import ROOT  # noqa: E402

ASR = ROOT / "egs/an4/ASR"


def call(script, *options):
    return subprocess.run(
        [str(ASR / script), "--launcher", "slurm", *map(str, options)],
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture
def exp(tmp_path):
    return tmp_path / "an exp"


@pytest.fixture
def dry(exp):
    """``dry(script, OPTIONS...)``: the jobs by name, in their order."""

    def run(script, *options):
        how = ("--dry-run", "true", "--python", sys.executable, "--exp-dir", exp)
        done = call(script, *how, *options)
        assert done.returncode == 0, done.stderr
        jobs = re.split(r"^# sbatch", done.stdout, flags=re.MULTILINE)[1:]
        assert not exp.exists()
        return {Path(job.splitlines()[0]).stem: job for job in jobs}

    return run


def test_a_chain(dry):
    jobs = dry("run.sh", "--dl-dir", "/data/an4", "--", "--train.seed", "7")
    assert list(jobs) == ["manifests", "features", "prepare", "train", "decode"]
    before = ""
    for name, job in jobs.items():
        assert (f"--dependency=afterok:{before} " in job) == bool(before)
        assert f"#SBATCH --job-name=an4-{name}\n" in job
        assert "#SBATCH --kill-on-invalid-dep=yes\n" in job
        before = name
    assert "--array=1-8\n" in jobs["features"]
    assert "--dl-dir' '/data/an4'" in jobs["prepare"]
    assert jobs["train"].rstrip().endswith("'--' '--train.seed' '7'")
    # A job's script is one that bash understands.
    for job in jobs.values():
        script = job.split("\n", 1)[1]
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_parts_of_a_chain(dry):
    assert list(dry("run.sh", "--stage", 2)) == ["train", "decode"]
    assert list(dry("run.sh", "--stage", 2, "--stop-stage", 2)) == ["train"]
    assert list(dry("run.sh", "--stop-stage", 1)) == [
        "manifests",
        "features",
        "prepare",
    ]


CLUSTER = """
# a comment
nodes = 2
processes=4
gpus = a100:4     # of a node
cpus = 6
time = 2-00:00:00
partition = gpu
extra = --qos=low --exclude=node[7-9]
"""


def test_what_a_cluster_is_asked_for(dry, tmp_path):
    (tmp_path / "cluster.conf").write_text(CLUSTER)
    jobs = dry("run.sh", "--cluster", tmp_path / "cluster.conf")
    asked = set(re.findall(r"#SBATCH (.*)", jobs["train"]))
    assert asked >= {
        *("--nodes=2", "--ntasks-per-node=4", "--gpus-per-node=a100:4"),
        *("--cpus-per-task=6", "--time=2-00:00:00", "--partition=gpu"),
        *("--qos=low", "--exclude=node[7-9]", "--requeue", "--signal=B:USR1@120"),
    }
    assert not any(word.startswith(("--mem", "--account")) for word in asked)
    for name in ("manifests", "features", "prepare", "decode"):
        assert "--gpus" not in jobs[name] and "#SBATCH --nodes=1\n" in jobs[name]


@pytest.mark.parametrize(
    "text, words",
    [
        ("nodes = 0", "nodes must be a whole number of 1 or more, not '0'"),
        ("cpus = many", "cpus must be a whole number"),
        ("restarts = -1", "restarts must be a whole number"),
        ("queue = long", "line 1: unknown name 'queue'; known are partition"),
        ("nodes 2", "line 1: NAME = VALUE is wanted, not 'nodes 2'"),
    ],
)
def test_a_wrong_cluster_file(tmp_path, exp, text, words):
    (tmp_path / "cluster.conf").write_text(text)
    how = (
        "--dry-run",
        "true",
        "--cluster",
        tmp_path / "cluster.conf",
        "--python",
        sys.executable,
    )
    done = call("run.sh", *how, "--exp-dir", exp)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert words in done.stderr


def test_other_mistakes(exp, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    if subprocess.run(["which", "sbatch"], capture_output=True).returncode != 0:
        done = call("run.sh", "--python", sys.executable, "--exp-dir", exp)
        assert done.returncode == 1 and "there is no sbatch here" in done.stderr
    for options, words in (
        (["--launcher", "pbs"], "--launcher must be one of local|slurm, not 'pbs'"),
        (["--cluster", "nowhere.conf"], "--cluster must be a file that exists"),
        (["--world-size", "0"], "--world-size must be a whole number of 1 or more"),
    ):
        done = call("run.sh", *options)
        assert done.returncode == 2 and words in done.stderr
    done = subprocess.run(
        [ASR / "prepare.sh", "--share", "2"], capture_output=True, text=True
    )
    assert (
        done.returncode == 2 and "--share must be such as 2/8, not '2'" in done.stderr
    )


@pytest.mark.parametrize("command", ["up", "down"])
def test_a_sandbox_leaves_other_directories_alone(tmp_path, monkeypatch, command):
    (tmp_path / "thesis.tex").write_text("years of work")
    monkeypatch.setenv("SLURM_SANDBOX", str(tmp_path))
    done = subprocess.run(
        [ROOT / "tools/slurm_sandbox.sh", command], capture_output=True, text=True
    )
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
    assert f"{tmp_path} is no sandbox's directory" in done.stderr
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


@pytest.mark.parametrize("code", [0, 42])
def test_a_job_ends_as_its_command_does(tmp_path, code):
    """However many signals arrive while it is ending."""
    ready = tmp_path / "ready"
    command = f"trap 'trap : TERM; sleep 0.2; exit {code}' TERM; touch {ready}; sleep 10 & wait"
    log = tmp_path / "log"
    with open(log, "w") as file:
        job = subprocess.Popen(
            [str(ROOT / "tools/slurm/job.sh"), "0", "bash", "-c", command],
            stdout=file,
            env={**os.environ, "SLURM_JOB_ID": "1"},
        )
    wait_until(ready.exists)
    for _ in range(1000):
        job.send_signal(signal.SIGTERM)
        time.sleep(0.003)
        if job.poll() is not None:
            break
    assert job.returncode == code
    assert f"exit code {code}" in log.read_text()


def wait_until(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)

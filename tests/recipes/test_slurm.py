"""The digits on a real SLURM of two nodes: the whole chain, and trainings that are disturbed.

ICEFALL_ATTN_TEST_SLURM=1 asks for it: it installs SLURM if it is not there (Debian, as root).
"""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from icefall_attn.training.checkpoint import load_checkpoint

ROOT = Path(__file__).parents[2]
SANDBOX = ROOT / "tools/slurm_sandbox.sh"
TRAINING = """
--train.max_steps 40 --train.save_every 10 --optim.warm_steps 10 --train.valid_wer false
--train.tensorboard false
""".split()
CLUSTER = "cpus = 1\nmemory = 1500M\nnodes = 2\narray = 2\nrestarts = 2\n"


pytestmark = pytest.mark.skipif(
    os.environ.get("ICEFALL_ATTN_TEST_SLURM") != "1",
    reason="takes four minutes, root and SLURM's packages; ICEFALL_ATTN_TEST_SLURM=1 asks for it",
)


class Slurm:
    """Calls programs so that they find the sandbox."""

    def __init__(self, checkout, state):
        self.recipe = checkout / "egs/digits/ASR"
        self.environ = {
            **os.environ,
            "SLURM_SANDBOX": str(state),
            "SLURM_CONF": str(state / "slurm.conf"),
            "PYTHONPATH": str(ROOT),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        self.cluster = state.parent / "cluster.conf"
        self.cluster.write_text(CLUSTER)

    def call(self, *command):
        done = subprocess.run(
            list(map(str, command)),
            cwd=self.recipe,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def submit(self, script, *options):
        """The numbers of the jobs by their names."""
        how = (
            "--python",
            sys.executable,
            "--launcher",
            "slurm",
            "--cluster",
            self.cluster,
        )
        said = self.call(f"./{script}", *how, *options)
        return dict(re.findall(r"^(\w+): job (\d+)", said, flags=re.MULTILINE))

    def wait(self, path=None):
        """Until a file is there, or no job is left."""
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline:
            if path is not None and path.exists():
                return
            if not self.call("squeue", "-h").strip():
                assert path is None, f"the jobs ended without {path}"
                return
            time.sleep(0.3)
        raise AssertionError(self.call("squeue"))

    def log(self, exp, name, job):
        return (self.recipe / exp / "log" / f"{name}-{job}.log").read_text()


@pytest.fixture(scope="module")
def slurm(checkout, tmp_path_factory):
    made = Slurm(checkout, tmp_path_factory.mktemp("slurm") / "state")
    made.call(SANDBOX, "up")
    try:
        yield made
    finally:
        made.call(SANDBOX, "down")


@pytest.fixture
def job(slurm, tmp_path):
    """``job(COMMANDS)``: runs them in bash as a job with one restart; its number and its log."""

    def run(commands):
        (tmp_path / "command.sh").write_text(commands)
        log = tmp_path / "log"
        number = slurm.call(
            *("sbatch", "--parsable", "--requeue", "--open-mode=append"),
            *(f"--output={log}", ROOT / "tools/slurm/job.sh", 1),
            *("bash", tmp_path / "command.sh"),
        )
        return number.strip(), log

    return run


def test_a_cancelled_job_is_not_queued_again(slurm, job, tmp_path):
    ready = tmp_path / "ready"
    number, log = job(
        f"trap 'exit 75' TERM USR1\ntouch {ready}\nwhile :; do sleep 0.1; done\n"
    )
    slurm.wait(ready)
    slurm.call("scancel", number)
    slurm.wait()
    assert "to be gone on with" not in log.read_text()
    assert "JobState=CANCELLED" in slurm.call("scontrol", "show", "job", number)


def test_only_crashes_are_counted(slurm, job):
    _, log = job("[ ${SLURM_RESTART_COUNT:-0} -gt 1 ] || exit 75\nexit 137\n")
    slurm.wait()
    ends = re.findall(r"^# ended: .*, exit code (.*)", log.read_text(), re.MULTILINE)
    goes_on = "75; to be gone on with"
    assert ends == [goes_on, goes_on, "137; crashed, restart 1 of 1", "137"]


@pytest.fixture(scope="module")
def undisturbed(slurm):
    """The whole chain in `exp`."""
    jobs = slurm.submit(
        *("run.sh", "--train-size", 300, "--dev-size", 24, "--test-size", 24),
        *("--avg", 1, "--methods", "greedy_search", "--", *TRAINING),
    )
    assert list(jobs) == ["manifests", "features", "prepare", "train", "decode"]
    slurm.wait()
    return jobs


def test_the_chain(slurm, undisturbed):
    for name in ("manifests", "prepare", "train", "decode"):
        log = slurm.log("exp", name, undisturbed[name])
        assert log.startswith("# command: ") and "exit code 0\n" in log
    shares = sorted(slurm.recipe.glob("exp/log/features-*.log"))
    assert len(shares) == 2
    assert list((slurm.recipe / "exp/log").glob("log-train-*-rank-1"))
    table = slurm.log("exp", "decode", undisturbed["decode"])
    assert re.search(r"^test +greedy_search .* WER [\d.]+%", table, flags=re.MULTILINE)
    # Shares and the stage that joins them have done each chunk once.
    features = slurm.recipe / "data/log"
    first, second, joined = (
        "x real time" in (features / f"prepare-features{share}.log").read_text()
        for share in ("-1", "-2", "")
    )
    assert first and second and not joined


def of_rank(rank, exp):
    """The process of a training that has this rank."""
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            command = (directory / "cmdline").read_text()
            environ = (directory / "environ").read_text().split("\0")
        except OSError:
            continue
        if f"\0{exp}\0" in command and "icefall-attn-train" in command:
            if f"RANK={rank}" in environ:
                return int(directory.name)
    raise AssertionError(f"no process of rank {rank} trains {exp}")


@pytest.mark.parametrize("disturbance", ["notice", "kill"])
def test_a_disturbed_training_ends_the_same(slurm, undisturbed, disturbance):
    exp = f"exp-{disturbance}"
    job = slurm.submit("train.sh", "--exp-dir", exp, "--", *TRAINING)["train"]
    slurm.wait(slurm.recipe / exp / "checkpoint-10.pt")
    if disturbance == "notice":  # as before the end of a job's time
        slurm.call("scancel", "--batch", "--signal=USR1", job)
    else:
        os.kill(of_rank(1, exp), signal.SIGKILL)
    slurm.wait()
    log = slurm.log(exp, "train", job)
    told = {
        "notice": "exit code 75; to be gone on with",
        "kill": "crashed, restart 1 of 2",
    }
    assert told[disturbance] in log and log.rstrip().endswith("exit code 0")
    one, other = (load_checkpoint(slurm.recipe / d / "last.pt") for d in ("exp", exp))
    for name, value in one["model"].items():
        assert torch.equal(value, other["model"][name]), name
    tables = [
        slurm.call("./decode.sh", "--python", sys.executable, "--exp-dir", d, "--avg", 1,
                   "--methods", "greedy_search").splitlines()[-1]
        for d in ("exp", exp)
    ]  # fmt: skip
    rates = [re.search(r"WER +[\d.]+%.*(?= )", table)[0] for table in tables]
    assert rates[0] == rates[1]


def test_a_failed_job_stops_the_chain(slurm, undisturbed):
    jobs = slurm.submit(
        *("run.sh", "--stage", 2, "--exp-dir", "exp-bad", "--"),
        *("--train.max_steps", "-1"),
    )
    slurm.wait()
    log = slurm.log("exp-bad", "train", jobs["train"])
    assert "error: " in log and "train.max_steps must be 0 or more" in log
    assert log.rstrip().endswith("exit code 1")
    assert not (slurm.recipe / f"exp-bad/log/decode-{jobs['decode']}.log").exists()

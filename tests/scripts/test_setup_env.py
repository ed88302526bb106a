"""``tools/setup_env.sh`` with a Python that only pretends: what it refuses, repeats and finishes."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Dict, List

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Writes down what it is asked for; `-m venv` makes an environment of itself.
FAKE_PYTHON = """#!/usr/bin/env bash
case "$1 ${2:-}" in
  -m*) echo "${*:2}" >>"$FAKE_CALLS" ;;
esac
case "$1 ${2:-}" in
  "-m venv") mkdir -p "$3/bin" "$3/lib/python$FAKE_VERSION/site-packages" && cp "$0" "$3/bin/python" ;;
  "-m "*)
    if [[ -n ${FAKE_FAILURE:-} && "$*" == *"$FAKE_FAILURE"* ]]; then
      echo "ERROR: No matching distribution found"
      exit 1
    fi
    if [[ -n ${FAKE_KILL:-} && "$*" == *"$FAKE_KILL"* ]]; then kill -9 $PPID; fi
    ;;
  *sys.executable*) printf '%s\\n' "$0" "$FAKE_VERSION" ;;
  *'metadata.version("torch")'*) [ -n "${FAKE_TORCH:-}" ] && printf '%s\\n' "$FAKE_TORCH" /users/site-packages ;;
  *ensurepip*) [ -z "${FAKE_NO_VENV:-}" ] ;;
  *find_spec*) [ -n "${FAKE_K2:-}" ] ;;
  "- ") echo "torch==$FAKE_TORCH" ;;
esac
"""


class Clone:
    """A copy of what the script reads, in a directory whose name has a space."""

    def __init__(self, tmp_path: Path) -> None:
        self.root = tmp_path / "a clone"
        for name in ("tools", "requirements"):
            shutil.copytree(ROOT / name, self.root / name)
        (self.root / "icefall_attn").mkdir()
        (self.root / "icefall_attn" / "__init__.py").write_text("")
        (self.root / "setup.py").write_text("")
        self.bin = tmp_path / "bin"
        self.bin.mkdir()
        self.program("python", FAKE_PYTHON)
        for name in ("python3.11", "python3.10", "python3"):
            self.program(
                name, "#!/bin/sh\necho 'shim: command not found' >&2\nexit 127\n"
            )
        self.program("python3.11", FAKE_PYTHON)
        self.program("uname", '#!/bin/sh\n[ "$1" = -s ] && echo Linux || echo x86_64\n')
        self.program("getconf", "#!/bin/sh\necho glibc 2.36\n")
        self.program("df", "#!/bin/sh\necho h\necho d 99999999 1 50000000 1% /\n")
        self.calls_file = tmp_path / "calls"

    def program(self, name: str, text: str) -> None:
        path = self.bin / name
        path.write_text(text)
        path.chmod(0o755)

    def setup(
        self, *options: str, **variables: str
    ) -> "subprocess.CompletedProcess[str]":
        self.calls_file.write_text("")
        environ: Dict[str, str] = {
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "FAKE_VERSION": "3.11",
            "FAKE_CALLS": str(self.calls_file),
            **variables,
        }
        return subprocess.run(
            [str(self.root / "tools" / "setup_env.sh"), *options],
            env=environ,
            cwd="/",
            capture_output=True,
            text=True,
            timeout=60,
        )

    def calls(self) -> List[str]:
        return self.calls_file.read_text().splitlines()

    def refusal(self, *options: str, code: int = 1, **variables: str) -> str:
        result = self.setup(*options, **variables)
        assert result.returncode == code, result.stdout
        assert self.calls() == [], "nothing may be installed"
        (line,) = result.stderr.splitlines()
        return line


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


def test_bad_options(clone: Clone) -> None:
    assert "unknown option '--pyton'" in clone.refusal("--pyton", "x", code=2)
    assert "unexpected argument 'x'" in clone.refusal("x", code=2)
    assert "--python needs a value" in clone.refusal("--python", code=2)
    assert "not 'mine'" in clone.refusal("--torch", "mine", code=2)
    assert "--torch user" in clone.refusal("--k2", "k2.whl", code=2)
    assert "'/no/python' does not run" in clone.refusal("--python", "/no/python")


def test_unsupported_platforms(clone: Clone) -> None:
    assert "Python 3.9" in clone.refusal(FAKE_VERSION="3.9")
    assert "Python 3.13" in clone.refusal(FAKE_VERSION="3.13")
    assert "no venv module" in clone.refusal(FAKE_NO_VENV="1")
    clone.program("getconf", "#!/bin/sh\necho glibc 2.17\n")
    assert "'2.17'" in clone.refusal()
    clone.program("uname", '#!/bin/sh\n[ "$1" = -s ] && echo Linux || echo aarch64\n')
    assert "no wheel for aarch64" in clone.refusal()
    clone.program("uname", "#!/bin/sh\necho Darwin\n")
    assert "no wheel for Darwin" in clone.refusal()


def test_full_disk(clone: Clone) -> None:
    clone.program("df", "#!/bin/sh\necho h\necho d 99999999 1 5000000 1% /\n")
    assert "has 4 GB free, and the environment needs 6 GB" in clone.refusal()


def test_no_python_that_runs(clone: Clone) -> None:
    clone.program("python3.11", "#!/bin/sh\nexit 127\n")
    assert "no Python found" in clone.refusal()


def test_somebody_elses_venv_is_left_alone(clone: Clone) -> None:
    precious = clone.root / ".venv" / "precious"
    precious.parent.mkdir()
    precious.write_text("")
    assert "not of this script's making" in clone.refusal()
    assert precious.exists()


def test_installs_in_order_and_then_does_nothing(clone: Clone) -> None:
    result = clone.setup()
    assert result.returncode == 0, result.stderr
    calls = clone.calls()
    for call, word in zip(
        calls,
        ["venv", "torch.txt", "k2.txt", "base.txt", "-e", "check_env"],
        strict=True,
    ):
        assert word in call
    assert "--no-deps" in calls[2] and "--no-deps" in calls[4]
    again = clone.setup()
    assert again.returncode == 0 and "up to date" in again.stdout
    assert clone.calls() == []


def test_an_active_environment_is_not_its_own_base(clone: Clone) -> None:
    clone.setup()
    shutil.copy(clone.bin / "python3.11", clone.root / ".venv" / "bin" / "python3.11")
    active = f"{clone.root}/.venv/bin:{clone.bin}:/usr/bin:/bin"
    assert "up to date" in clone.setup(PATH=active).stdout
    (clone.root / ".venv" / ".setup-done").unlink()
    assert clone.setup(PATH=active).returncode == 0


def test_k2_is_pinned_by_hash_for_every_python_that_is_accepted() -> None:
    lines = [
        line
        for line in (ROOT / "requirements" / "k2.txt").read_text().splitlines()
        if not line.startswith("#")
    ]
    versions = [line.split('"')[1] for line in lines]
    hashes = [line.rpartition("--hash=sha256:")[2] for line in lines]
    assert versions == ["3.10", "3.11"]
    assert all(len(value) == 64 for value in hashes) and len(set(hashes)) == 2


def test_changed_requirements_update_in_place(clone: Clone) -> None:
    clone.setup()
    with open(clone.root / "requirements" / "base.txt", "a") as file:
        file.write("one-more\n")
    clone.setup()
    assert len(clone.calls()) == 5 and "venv" not in clone.calls()[0].split()


def test_another_python_starts_afresh(clone: Clone) -> None:
    clone.setup()
    clone.program("other", FAKE_PYTHON)
    clone.setup("--python", "other", FAKE_VERSION="3.10")
    assert clone.calls()[0].startswith("venv ")


def test_failure_is_one_line_and_is_finished_later(clone: Clone) -> None:
    failed = clone.setup(FAKE_FAILURE="base.txt")
    assert failed.returncode == 1
    (line,) = failed.stderr.splitlines()
    assert "ERROR: No matching distribution found" in line and "setup.log" in line
    assert not any("check_env" in call for call in clone.calls())
    assert clone.setup().returncode == 0
    assert clone.calls()[0].startswith("venv ")


def test_killed_installation_is_finished_later(clone: Clone) -> None:
    assert clone.setup(FAKE_KILL="torch.txt").returncode == -9
    assert clone.setup().returncode == 0
    assert clone.calls()[0].startswith("venv ") and "check_env" in clone.calls()[-1]


class TestUsersTorch:
    def test_torch_is_kept(self, clone: Clone) -> None:
        result = clone.setup("--torch", "user", FAKE_TORCH="2.13.0+cu130")
        assert result.returncode == 0, result.stderr
        assert not any(
            "torch.txt" in call or "k2.txt" in call for call in clone.calls()
        )
        venv = clone.root / ".venv"
        assert (venv / "users-versions.txt").read_text() == "torch==2.13.0+cu130\n"
        assert any("base.txt" in c and "users-versions.txt" in c for c in clone.calls())
        (seen,) = venv.glob("lib/python*/site-packages/users-torch.pth")
        assert seen.read_text() == "/users/site-packages\n"
        assert "--without-k2" in clone.calls()[-1] and "no k2" in result.stdout

    def test_is_kept_by_a_call_without_options(self, clone: Clone) -> None:
        clone.setup("--torch", "user", "--k2", "none", FAKE_TORCH="2.13.0")
        assert "up to date" in clone.setup(FAKE_TORCH="2.13.0").stdout
        assert clone.calls() == []

    def test_its_k2_is_checked(self, clone: Clone) -> None:
        clone.setup("--torch", "user", FAKE_TORCH="2.13.0", FAKE_K2="1")
        assert clone.calls()[-1] == "icefall_attn.bin.check_env"

    def test_k2_wheel(self, clone: Clone, tmp_path: Path) -> None:
        wheel = tmp_path / "k2-1.24.4-cp311-cp311-linux_x86_64.whl"
        wheel.write_text("")
        clone.setup(
            "--torch", "user", "--k2", str(wheel), FAKE_TORCH="2.13.0", FAKE_K2="1"
        )
        assert any("--no-deps" in c and str(wheel) in c for c in clone.calls())

    def test_without_torch(self, clone: Clone) -> None:
        assert "has no torch of 1.13 or newer" in clone.refusal("--torch", "user")


def test_env_sh_sets_threads_and_mkl(tmp_path: Path) -> None:
    command = f'. "{ROOT}/tools/env.sh"; echo "$OMP_NUM_THREADS ${{MKL_DEBUG_CPU_TYPE:-none}}"'

    def said(**variables: str) -> List[str]:
        return subprocess.run(
            ["bash", "-euc", command],
            env={"PATH": os.environ["PATH"], **variables},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()

    threads, mkl = said()
    assert 1 <= int(threads) <= len(os.sched_getaffinity(0))
    intel = "GenuineIntel" in Path("/proc/cpuinfo").read_text()
    assert mkl == ("none" if intel else "5")
    assert said(OMP_NUM_THREADS="3", MKL_DEBUG_CPU_TYPE="4") == ["3", "4"]

"""The environment report tells what is there, and never fails."""

import importlib
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from icefall_attn import environment
from icefall_attn.bin import check_env
from icefall_attn.environment import environment_report
from icefall_attn.errors import UserError

ROOT = Path(environment.__file__).parents[1]


def facts(report: str) -> dict:
    return dict(line.split(": ", 1) for line in report.splitlines())


def test_reports_versions_and_machine() -> None:
    import torch

    told = facts(environment_report())
    assert told["torch"].startswith(torch.__version__)
    assert told["numpy"] == metadata.version("numpy")
    assert told["python"].startswith("%d.%d.%d" % sys.version_info[:3])
    assert f"torch {torch.get_num_threads()}" in told["threads"]
    assert f"{len(os.sched_getaffinity(0))} of" in told["cpu"]
    assert sys.executable in told["command"]
    assert "unknown" not in "".join(told.values())


def test_without_the_command() -> None:
    told = facts(environment_report(command=False))
    assert "command" not in told and "date" not in told and "host" in told


def test_never_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args, **kwargs):
        raise OSError("libtorch.so: cannot\nopen")

    monkeypatch.setattr(importlib, "import_module", broken)
    monkeypatch.setattr(subprocess, "run", broken)
    monkeypatch.setattr(environment, "usable_cores", broken)
    told = facts(environment_report())  # one line each, although the reason has two
    assert told["torch"] == "unknown (OSError: libtorch.so: cannot open)"
    assert told["git commit"] == "none (not a git repository)"
    assert told["cpu"].startswith("unknown (OSError")
    assert told["numpy"] == metadata.version("numpy")


def test_missing_packages_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(environment.metadata, "version", missing)
    told = facts(environment_report())
    assert told["torch"] == "not installed"
    assert told["k2"].startswith("not installed (")
    assert told["torchaudio"].startswith("not installed (")


class TestCheckEnv:
    @pytest.fixture(autouse=True)
    def no_options(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "argv", ["check_env"])

    def test_self_test_passes(self, capsys: pytest.CaptureFixture) -> None:
        pytest.importorskip("k2")
        check_env.main()
        out = capsys.readouterr().out
        assert "torch: " in out and "pruned loss is right" in out

    def test_wrong_loss_is_noticed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        k2 = pytest.importorskip("k2")
        right = k2.rnnt_loss_pruned
        monkeypatch.setattr(k2, "rnnt_loss_pruned", lambda **kw: right(**kw) + 0.1)
        with pytest.raises(UserError, match="where .* is right"):
            check_env.main()

    @pytest.mark.parametrize("name", ["torch", "k2"])
    def test_import_that_fails(
        self, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = importlib.import_module

        def fails(wanted: str):
            if wanted == name:
                raise RuntimeError("built for\nanother torch")
            return real(wanted)

        monkeypatch.setattr(importlib, "import_module", fails)
        with pytest.raises(
            UserError, match=f"{name} cannot be imported .built for another"
        ):
            check_env.main()

    def test_k2_may_be_left_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "argv", ["check_env", "--without-k2"])
        real = importlib.import_module

        def fails(wanted: str):
            if wanted == "k2":
                raise ImportError("no k2")
            return real(wanted)

        monkeypatch.setattr(importlib, "import_module", fails)
        check_env.main()

    def test_program_prints_one_line_and_fails(self, tmp_path) -> None:
        (tmp_path / "k2").mkdir()
        (tmp_path / "k2" / "__init__.py").write_text("raise ValueError('wrong torch')")
        result = subprocess.run(
            [sys.executable, "-m", "icefall_attn.bin.check_env"],
            env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert result.returncode == 1
        (line,) = result.stderr.splitlines()
        assert line.startswith("error: k2 cannot be imported (wrong torch); torch is ")

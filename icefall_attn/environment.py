"""What a run stands on: versions, processor, GPU and commit, as lines for the head of a log."""

import importlib
import os
import platform
import shlex
import socket
import subprocess
import sys
from datetime import datetime
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Callable, List, Tuple

__all__ = ["describe_cpu", "environment_report", "usable_cores", "why_no_k2"]


def environment_report(command: bool = True) -> str:
    """Describes the environment of this process, one ``name: value`` a line.

    It never raises: what cannot be found out is reported as unknown, with the reason.

    Args:
      command: whether to add the command line and the date of this process.
    """
    facts: List[Tuple[str, Callable[[], str]]] = [
        ("icefall_attn", _package),
        ("git commit", _git_commit),
        ("python", lambda: f"{platform.python_version()} ({sys.executable})"),
        ("torch", _torch),
        ("k2", _k2),
        ("torchaudio", _torchaudio),
        ("lhotse", lambda: _version("lhotse")),
        ("sentencepiece", lambda: _version("sentencepiece")),
        ("numpy", lambda: _version("numpy")),
        ("host", lambda: f"{socket.gethostname()} ({platform.platform()})"),
        ("cpu", describe_cpu),
        ("threads", _threads),
        ("gpu", _gpu),
    ]
    if command:
        facts += [
            ("command", lambda: shlex.join([sys.executable, *sys.argv])),
            ("date", lambda: datetime.now().astimezone().isoformat(" ", "seconds")),
        ]
    return "\n".join(f"{name}: {_told(fact)}" for name, fact in facts)


def usable_cores() -> int:
    """Counts the processors that this process may run on (its affinity)."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        return os.cpu_count() or 1


@lru_cache(maxsize=None)
def why_no_k2(device_type: str = "cpu") -> str:
    """The reason why k2 cannot be used on a kind of device; empty if it can."""
    try:
        import k2
    except (
        Exception
    ) as error:  # built for another torch, k2 raises errors of its own kinds
        return f"k2 cannot be imported ({' '.join(str(error).split()) or type(error).__name__})"
    if device_type == "cuda" and not k2.with_cuda:
        return "this k2 was built without CUDA"
    return ""


def _told(fact: Callable[[], str]) -> str:
    try:
        return fact()
    # A broken extension module can fail at import with anything; a log must start all the same.
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        return f"unknown ({type(error).__name__}: {reason})"


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "not installed"


def _package() -> str:
    import icefall_attn

    return f"{icefall_attn.__version__} ({Path(icefall_attn.__file__).parent})"


def _git_commit() -> str:
    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(Path(__file__).parent), *arguments],
            check=True,
            capture_output=True,
            text=True,
            timeout=10,
        ).stdout.strip()

    try:
        if not git("ls-files", Path(__file__).name):
            return "none (the package lies outside its repository)"
        commit = git("log", "-1", "--format=%h of %cs")
        changed = git("status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return "none (not a git repository)"
    return commit + (" with uncommitted changes" if changed else "")


def _torch() -> str:
    if _version("torch") == "not installed":
        return "not installed"
    torch = importlib.import_module("torch")
    return f"{torch.__version__} (CUDA {torch.version.cuda or 'not built in'})"


def _k2() -> str:
    version = _version("k2")
    if version == "not installed":
        return f"{version} (the loss runs on the torch backend)"
    k2 = importlib.import_module("k2")
    with_cuda = getattr(k2, "with_cuda", None)
    return version + {
        True: " (with CUDA)",
        False: " (CPU only)",
        None: "",
    }.get(with_cuda, "")


def _torchaudio() -> str:
    version = _version("torchaudio")
    if version == "not installed":
        return f"{version} (needed only for tempo, codec and room effects)"
    importlib.import_module("torchaudio")
    return version


def describe_cpu() -> str:
    """The processor's model, and how many of its cores are usable."""
    model = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    return f"{model}, {usable_cores()} of {os.cpu_count()} cores usable"


def _threads() -> str:
    torch = importlib.import_module("torch")
    return ", ".join(
        [f"torch {torch.get_num_threads()}"]
        + [
            f"{name}={os.environ.get(name, 'not set')}"
            for name in ("OMP_NUM_THREADS", "MKL_DEBUG_CPU_TYPE")
        ]
    )


def _gpu() -> str:
    cuda = importlib.import_module("torch").cuda
    if not cuda.is_available():
        return "none"
    return ", ".join(
        f"{properties.name} ({properties.total_memory / 2**30:.0f} GiB)"
        for properties in map(cuda.get_device_properties, range(cuda.device_count()))
    )


if __name__ == "__main__":  # for the head of the recipes' logs
    print(environment_report(command=False))

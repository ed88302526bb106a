"""Files are written whole or not at all, and what a killed writer leaves is removed later."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from icefall_attn import files
from icefall_attn.errors import UserError
from icefall_attn.files import (
    atomic_write,
    locked,
    remove_leftovers,
    temporary_path,
)

ROOT = Path(__file__).parents[1]

WRITER = """
import os, signal, sys
from icefall_attn.files import atomic_write
with atomic_write(sys.argv[1]) as file:
    file.write("half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def test_an_error_leaves_the_old_file(tmp_path):
    path = tmp_path / "new" / "file"
    with atomic_write(path) as file:
        file.write("old")
    with pytest.raises(RuntimeError), atomic_write(path, "wb") as file:
        file.write(b"half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert names(path.parent) == ["file"]


def test_what_a_killed_writer_leaves_is_removed(tmp_path):
    path = tmp_path / "wer-summary-test.txt"
    path.write_text("old")
    done = subprocess.run(
        [sys.executable, "-c", WRITER, str(path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == -signal.SIGKILL
    assert len(names(tmp_path)) == 2
    remove_leftovers(tmp_path)
    assert names(tmp_path) == [path.name]
    assert path.read_text() == "old"


def test_what_is_being_written_stays(tmp_path, monkeypatch):
    """By this process, on another host, or by no process of ours."""
    with atomic_write(tmp_path / "file") as file:
        remove_leftovers(tmp_path)
        file.write("whole")
    assert (tmp_path / "file").read_text() == "whole"
    monkeypatch.setattr(files, "_host", lambda: "elsewhere")
    other = temporary_path(tmp_path / "file").name.replace(
        f".{os.getpid()}.", ".0999999999."
    )
    monkeypatch.undo()
    for name in (other, ".file.tmp", ".file.999999999.tmp", "file.999999999.tmp"):
        (tmp_path / name).touch()
    before = names(tmp_path)
    remove_leftovers(tmp_path)
    assert names(tmp_path) == before
    remove_leftovers(tmp_path / "nowhere")


def test_a_full_disk_names_the_file(tmp_path):
    with pytest.raises(OSError) as error, atomic_write(tmp_path / "file"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert error.value.filename == str(tmp_path / "file")


def test_a_directory_has_one_process(tmp_path):
    holder = f"""
import time
from icefall_attn.files import locked
with locked({str(tmp_path)!r}):
    print("mine", flush=True)
    time.sleep(60)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", holder],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout.readline() == b"mine\n"
        with pytest.raises(UserError, match="another process is at work"):
            with locked(tmp_path):
                pass
    finally:
        process.kill()
        process.wait()
    with locked(tmp_path):  # a killed process holds nothing
        pass

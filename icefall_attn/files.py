"""Files are written whole or not at all."""

import fcntl
import os
import platform
import re
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Iterator, Union

from icefall_attn.errors import UserError


@contextmanager
def atomic_write(path: Union[str, Path], mode: str = "w") -> Iterator[IO]:
    """Opens a temporary file beside ``path`` that takes its place when the block ends well.

    Args:
      path: the file to write; its directory is made if missing.
      mode: ``"w"`` (UTF-8 text) or ``"wb"``.

    Raises:
      OSError: as the system says (disk full, no permission); ``path`` is then as it was before.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_path(path)
    try:
        with open(temporary, mode, encoding=None if "b" in mode else "utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        if error.filename is None:  # a full disk does not say where
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def locked(directory: Union[str, Path]) -> Iterator[None]:
    """Keeps other processes out of a directory, on this machine and where file systems can on others.

    Raises:
      UserError: another process has it.
    """
    path = Path(directory) / ".lock"
    with open(path, "a") as file:
        try:
            # not flock, which loading processes would inherit and keep after a kill
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            raise UserError(
                f"another process is at work in {directory}; wait for it, stop it, or take another "
                "directory"
            ) from None
        except OSError:  # a file system without locks
            pass
        yield


def temporary_path(path: Path) -> Path:
    """Where this process writes ``path`` until it is whole: ``.NAME.HOST.PID.tmp`` beside it."""
    return path.with_name(f".{path.name}.{_host()}.{os.getpid()}.tmp")


def remove_leftovers(directory: Union[str, Path]) -> None:
    """Deletes the temporary files in ``directory`` that a killed process could not delete.

    Those of other hosts stay, as one cannot know here whether they are still being written.
    """
    name = re.compile(rf"\..+\.{re.escape(_host())}\.(\d+)\.tmp")
    for path in Path(directory).glob(".*.tmp"):
        match = name.fullmatch(path.name)
        if match and not _runs(int(match[1])):
            path.unlink(missing_ok=True)


def _host() -> str:
    return platform.node().split(".")[0] or "localhost"


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # somebody else's
        return True
    return True

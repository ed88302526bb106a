"""Files are written whole or not at all."""

import os
import platform
import re
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Iterator, Union


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
    finally:
        temporary.unlink(missing_ok=True)


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

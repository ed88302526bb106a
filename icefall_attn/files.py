"""Files are written whole or not at all."""

import os
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
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, mode, encoding=None if "b" in mode else "utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)

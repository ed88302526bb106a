"""Lhotse manifests on the disk: written whole, read with errors that name the file."""

import filecmp
import gzip
import math
import os
import random
import re
import zlib
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Iterable, Iterator, Union

from lhotse import (
    Recording,
    RecordingSet,
    SupervisionSegment,
    SupervisionSet,
    load_manifest,
    load_manifest_lazy,
)

from icefall_attn.errors import UserError
from icefall_attn.files import temporary_path


def manifest_path(manifest_dir: Path, prefix: str, kind: str, part: str) -> Path:
    """Where the ``kind`` (recordings, supervisions or cuts) of one part of a corpus lie."""
    return Path(manifest_dir) / f"{prefix}_{kind}_{part}.jsonl.gz"


def refuse_held_out(paths: Iterable[Path], purpose: str) -> None:
    """Refuses text of a dev or test set, by the name of its file, which is all that tells.

    Args:
      paths: files that should hold training text.
      purpose: what it is wanted for, such as ``tokens``: made of other text they spoil every result.

    Raises:
      UserError: naming the file.
    """
    for path in paths:
        if re.search(r"(^|[_-])(dev|test|valid|eval)([_.-]|$)", path.name):
            raise UserError(
                f"{path} is no training set; {purpose} come from training text only"
            )


def write_manifest(manifest: Any, path: Union[str, Path]) -> None:
    """Writes a set of recordings, supervisions or cuts; the file appears when it is whole."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Lhotse goes by the ending of the name, so that the mark of a temporary file comes first.
    temporary = path.with_name(f".{os.getpid()}.tmp.{path.name}")
    try:
        manifest.to_file(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_part(
    manifest_dir: Path,
    prefix: str,
    part: str,
    recordings: Iterable[Recording],
    supervisions: Iterable[SupervisionSegment],
) -> None:
    """Writes the recordings and supervisions of one part of a corpus."""
    write_manifest(
        RecordingSet.from_recordings(recordings),
        manifest_path(manifest_dir, prefix, "recordings", part),
    )
    write_manifest(
        SupervisionSet.from_segments(supervisions),
        manifest_path(manifest_dir, prefix, "supervisions", part),
    )


def read_manifest(path: Union[str, Path], lazy: bool = False) -> Any:
    """Reads a manifest; ``lazy`` ones are read again on each pass, item by item.

    Raises:
      UserError: if the file is missing or damaged (when lazy: or empty).
    """
    _check_there(path)
    try:
        return load_manifest_lazy(path) if lazy else load_manifest(path)
    except Exception as error:  # gzip, JSON and lhotse have a dozen ways to fail
        raise UserError(f"{path} cannot be read as a manifest: {error!r}")


def read_lines(path: Union[str, Path]) -> Iterator[bytes]:
    """The lines of a `.jsonl.gz` manifest as they are, for programs that look at millions.

    Raises:
      UserError: if the file is missing or damaged.
    """
    _check_there(path)
    try:
        with gzip.open(path) as file:
            yield from file
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} cannot be read as a manifest: {error!r}")


def read_items(path: Union[str, Path]) -> Iterator[Any]:
    """What a manifest holds, item by item.

    Raises:
      UserError: if the file is missing, empty or damaged.
    """
    count = 0
    try:
        for count, item in enumerate(read_manifest(path, lazy=True), 1):
            yield item
    except UserError:
        raise
    except Exception as error:  # as above
        raise UserError(f"{path} is damaged after {count} items: {error!r}")


def write_lines(lines: Iterable[bytes], path: Path) -> bool:
    """Writes lines to a `.jsonl.gz` manifest, which appears when it is whole.

    Returns:
      whether the file has changed; one that holds these lines already is left alone.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_path(path)
    try:
        with open(temporary, "wb") as file:
            # Without a name and a time in it, equal lines give equal files.
            with gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
                packed.writelines(lines)
            file.flush()
            os.fsync(file.fileno())
        if path.is_file() and filecmp.cmp(temporary, path, shallow=False):
            return False
        os.replace(temporary, path)
        return True
    finally:
        temporary.unlink(missing_ok=True)


def shuffled_lines(
    lines: Iterable[bytes], count: int, directory: Path, at_once: int = 100_000
) -> Iterator[bytes]:
    """Lines in a random order, always the same, all orders being as likely.

    Args:
      lines: to be shuffled.
      count: about how many there are.
      directory: with room for temporary files.
      at_once: how many are held in memory, about.
    """
    rng = random.Random(0)
    with ExitStack() as stack:
        piles = [
            stack.enter_context(TemporaryFile(dir=directory))
            for _ in range(max(1, math.ceil(count / at_once)))
        ]
        with ExitStack() as writing:
            writers = [
                writing.enter_context(gzip.GzipFile("", "wb", 1, pile))
                for pile in piles
            ]
            for line in lines:
                rng.choice(writers).write(line)
        for pile in piles:
            pile.seek(0)
            with gzip.GzipFile("", "rb", fileobj=pile) as reader:
                held = reader.readlines()
            rng.shuffle(held)
            yield from held


def _check_there(path: Union[str, Path]) -> None:
    if not Path(path).is_file():
        raise UserError(f"{path} is missing; prepare the data first")

"""Lhotse manifests on the disk: written whole, read with errors that name the file."""

import os
from pathlib import Path
from typing import Any, Iterable, Union

from lhotse import (
    Recording,
    RecordingSet,
    SupervisionSegment,
    SupervisionSet,
    load_manifest,
    load_manifest_lazy,
)

from icefall_attn.errors import UserError


def manifest_path(manifest_dir: Path, prefix: str, kind: str, part: str) -> Path:
    """Where the ``kind`` (recordings, supervisions or cuts) of one part of a corpus lie."""
    return Path(manifest_dir) / f"{prefix}_{kind}_{part}.jsonl.gz"


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
    if not Path(path).is_file():
        raise UserError(f"{path} is missing; prepare the data first")
    try:
        return load_manifest_lazy(path) if lazy else load_manifest(path)
    except Exception as error:  # gzip, JSON and lhotse have a dozen ways to fail
        raise UserError(f"{path} cannot be read as a manifest: {error!r}")

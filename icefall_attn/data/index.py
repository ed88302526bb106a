"""Files of cuts as arrays on the disk: any cut is read by its number.

One pass over a file notes where each cut begins and how long it is: 24 bytes a cut. A gzip file
cannot be entered in its middle; its lines are kept uncompressed beside the index.
"""

import gzip
import hashlib
import logging
import os
import zipfile
from array import array
from pathlib import Path
from typing import (
    IO,
    Any,
    Callable,
    Dict,
    Iterable,
    List,
    Optional,
    Sequence,
    Tuple,
    Union,
)

import numpy as np
from lhotse.cut import Cut
from lhotse.serialization import decode_json_line, deserialize_item

from icefall_attn.errors import UserError
from icefall_attn.files import atomic_write

Arrays = Dict[str, np.ndarray]


class IndexedCuts:
    """The cuts of a file (JSON lines, with or without gzip), numbered from 0.

    Attributes:
      durations: (N,) float64 seconds.
      keys: (N,) uint64 hashes of the names.

    Raises:
      UserError: if the file is missing, damaged or has another format.
    """

    def __init__(self, path: Union[str, Path]):
        self.path = Path(path)
        if not self.path.is_file():
            raise UserError(f"{path} is missing; prepare the data first")
        if not self.path.name.endswith((".jsonl", ".jsonl.gz")):
            raise UserError(f"{path} is no file of cuts: it should end in .jsonl.gz")
        arrays, directory = load_or_build(self.path, [self.path], self._build)
        self.durations, self.keys = arrays["durations"], arrays["keys"]
        self._offsets = arrays["offsets"]
        self._lines = self._lines_in(directory)

    def read(self, numbers: Sequence[int]) -> List[Cut]:
        """The cuts with these numbers, in their order."""
        try:
            with open(self._lines, "rb") as file:
                return [_read_line(file, int(self._offsets[n])) for n in numbers]
        except Exception as error:  # JSON and lhotse have a dozen ways to fail
            raise UserError(f"{self.path} is damaged or has been changed: {error!r}")

    def _lines_in(self, directory: Path) -> Path:
        compressed = self.path.suffix == ".gz"
        return directory / self.path.stem if compressed else self.path

    def _build(self, directory: Path) -> Arrays:
        logging.info("%s: noting where its cuts lie, once", self.path)
        if self.path.suffix != ".gz":
            with open(self.path, "rb") as lines:
                return scan(lines, self.path)
        with gzip.open(self.path) as lines:
            with atomic_write(self._lines_in(directory), "wb") as copy:
                return scan(lines, self.path, copy)


class Joined:
    """Several of them, numbered through.

    Attributes:
      durations: (N,) float64 seconds.
    """

    def __init__(self, parts: Sequence[Any]):
        self.durations = np.concatenate([part.durations for part in parts])
        self._parts = parts
        self._ends = np.cumsum([len(part.durations) for part in parts])

    def __len__(self) -> int:
        return len(self.durations)

    def read(self, numbers: Sequence[int]) -> List[Cut]:
        """The cuts with these numbers, in their order."""
        numbers = np.asarray(numbers, dtype=np.int64)
        which = np.searchsorted(self._ends, numbers, side="right")
        cuts: Dict[int, Cut] = {}
        for index in np.unique(which):
            part, places = self._parts[index], np.flatnonzero(which == index)
            before = self._ends[index] - len(part.durations)
            cuts.update(zip(places, part.read(numbers[places] - before)))
        return [cuts[place] for place in range(len(numbers))]

    def twice(self) -> Optional[int]:
        """The number of a cut whose name another one has too, or None."""
        keys = np.concatenate([part.keys for part in self._parts])
        order = np.argsort(keys)
        same = np.flatnonzero(np.diff(keys[order]) == 0)
        return int(order[same[0]]) if len(same) else None


def scan(
    lines: Iterable[bytes], path: Path, copy: Optional[IO[bytes]] = None
) -> Arrays:
    """Durations, keys and offsets in bytes of the cuts in lines of JSON, copied as they pass."""
    durations, keys, offsets = array("d"), array("Q"), array("q")
    offset = 0
    try:
        for line in lines:
            if line.strip():
                item = decode_json_line(line)
                keys.append(_hash(item["id"]))
                if "duration" not in item:  # a mixture
                    item = {"duration": deserialize_item(item).duration}
                durations.append(item["duration"])
                offsets.append(offset)
            offset += len(line)
            if copy is not None:
                copy.write(line)
    except Exception as error:  # gzip, JSON and lhotse have a dozen ways to fail
        raise UserError(f"{path} is damaged after {len(keys)} utterances: {error!r}")
    return {
        "durations": np.asarray(durations),
        "keys": np.asarray(keys),
        "offsets": np.asarray(offsets),
    }


def load_or_build(
    path: Path, sources: Sequence[Path], build: Callable[[Path], Arrays]
) -> Tuple[Arrays, Path]:
    """What ``build`` makes of ``sources``, kept until one of these changes, and where it is kept.

    That is the directory `.index` beside ``path``, or one of the user's cache if that cannot be
    written. ``build`` is given it and may put files of its own there.
    """
    states = [source.stat() for source in sources]
    mark = np.array([(s.st_size, s.st_mtime_ns) for s in states], dtype=np.int64)
    places = [path.parent / ".index", _users_cache(path.parent)]
    name = f"{path.name}.npz"
    for place in places:
        arrays = _load(place / name)
        if np.array_equal(arrays.pop("mark", None), mark):
            return arrays, place
    place = next(filter(_writable, places), places[-1])
    arrays = build(place)
    with atomic_write(place / name, "wb") as file:
        np.savez(file, mark=mark, **arrays)
    return arrays, place


def _load(path: Path) -> Arrays:
    try:
        with np.load(path) as stored:
            return dict(stored)
    except (OSError, EOFError, ValueError, zipfile.BadZipFile):  # none, or half of one
        return {}


def _users_cache(directory: Path) -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "icefall_attn" / f"{_hash(str(directory.resolve())):016x}"


def _writable(directory: Path) -> bool:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(directory, os.W_OK)


def _read_line(file: IO[bytes], offset: int) -> Cut:
    file.seek(offset)
    return deserialize_item(decode_json_line(file.readline()))


def _hash(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")

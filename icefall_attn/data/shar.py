"""Lhotse Shar: cuts and their data in numbered archives that are read from end to end.

A directory holds `cuts.000000.jsonl.gz` with `features.000000.tar`, `recording.000000.tar` or
both, then the same with 000001 and so on. It suits object stores and network file systems: a shard
is one sequential read, and each training process reads its own.
"""

import gzip
from collections import OrderedDict
from pathlib import Path
from typing import Dict, List, Sequence, Union

import numpy as np
from lhotse.cut import Cut
from lhotse.shar.readers.lazy import LazySharIterator

from icefall_attn.data.index import Arrays, load_or_build, scan
from icefall_attn.errors import UserError

# Shards that a training process reads from at the same time. Its loading processes divide them
# among themselves if their number divides this one.
STREAMS = 8


class SharCuts:
    """The cuts of a Shar directory with their data, numbered from 0 through all shards.

    Attributes:
      durations: (N,) float64 seconds.
      keys: (N,) uint64 hashes of the names.
      shards: (N,) int64, the number of each cut's shard.
      num_shards: their count.

    Args:
      path: the directory.
      field: the data to read, ``features`` or ``recording``.

    Raises:
      UserError: if a file is missing or damaged.
    """

    def __init__(self, path: Union[str, Path], field: str):
        self.path = Path(path)
        self._cuts = shard_files(self.path)
        if not self._cuts:
            raise UserError(f"{path} is no Shar directory: it has no cuts.*.jsonl.gz")
        self._field = field
        self._data = [
            self.path / f"{field}.{file.name.split('.')[1]}.tar" for file in self._cuts
        ]
        for file in self._data:
            if not file.is_file():
                raise UserError(f"{file} is missing; export the {field} to Shar")
        # Beside the directory: lhotse would take a file inside for data.
        arrays, _ = load_or_build(self.path.resolve(), self._cuts, self._build)
        self.durations, self.keys = arrays["durations"], arrays["keys"]
        self._ends = arrays["ends"]
        self.num_shards = len(self._cuts)
        self.shards = np.repeat(
            np.arange(self.num_shards), np.diff(self._ends, prepend=0)
        )
        self._held: "OrderedDict[int, Dict[int, Cut]]" = OrderedDict()

    def read(self, numbers: Sequence[int]) -> List[Cut]:
        """The cuts with these numbers, in their order, and their data in memory.

        A shard is read whole when the first of its cuts is wanted. A cut is given away once; when
        it is wanted again its shard is read again.
        """
        return [self._take(int(number)) for number in numbers]

    def _take(self, number: int) -> Cut:
        shard = int(self.shards[number])
        if number not in self._held.get(shard, {}):
            self._held.pop(shard, None)
            while len(self._held) >= STREAMS:
                self._held.popitem(last=False)
            self._held[shard] = self._read_shard(shard)
        cut = self._held[shard].pop(number)
        if not self._held[shard]:
            del self._held[shard]
        return cut

    def _read_shard(self, shard: int) -> Dict[int, Cut]:
        files = {"cuts": [self._cuts[shard]], self._field: [self._data[shard]]}
        end = int(self._ends[shard])
        start = int(self._ends[shard - 1]) if shard > 0 else 0
        try:
            cuts = dict(enumerate(LazySharIterator(fields=files), start))
        except (
            Exception
        ) as error:  # tar, gzip, JSON and lhotse have a dozen ways to fail
            raise UserError(f"{self._data[shard]} cannot be read: {error!r}")
        if len(cuts) != end - start:
            raise UserError(
                f"{self._data[shard]} has data of {len(cuts)} cuts, not of {end - start};"
                " export it again"
            )
        return cuts

    def _build(self, _: Path) -> Arrays:
        found = []
        for path in self._cuts:
            with gzip.open(path) as lines:
                found.append(scan(lines, path))
        joined = {
            name: np.concatenate([part[name] for part in found])
            for name in ("durations", "keys")
        }
        return {**joined, "ends": np.cumsum([len(part["keys"]) for part in found])}


def shard_files(path: Union[str, Path]) -> List[Path]:
    """The files of cuts of a Shar directory, in the order of their numbers."""
    return sorted(Path(path).glob("cuts.*.jsonl.gz"))

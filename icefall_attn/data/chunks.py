"""Features of a corpus, computed some hundred utterances at a time.

A chunk is finished when its file of cuts is there: `INDEX-AUDIO.jsonl.gz`, AUDIO being a digest of
all that its features depend on. They lie beside it in `INDEX-AUDIO.lca` or `INDEX-AUDIO/`. So what
a killed process has finished is found again, and what was made from other audio is not touched.
"""

import errno
import hashlib
import json
import os
import shutil
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import (
    Any,
    ContextManager,
    Dict,
    Iterable,
    List,
    NamedTuple,
    Sequence,
    Tuple,
)

from lhotse import LilcomChunkyWriter, NumpyFilesWriter
from lhotse.cut import Cut
from lhotse.features.io import FeaturesWriter

from icefall_attn.data.features import feature_extractor
from icefall_attn.data.manifests import read_lines, write_lines
from icefall_attn.data.utterances import Unusable, Utterance, load_samples, make_cut


@dataclass(frozen=True)
class Plan:
    """What is made of every utterance of a part.

    Attributes:
      directory: of the chunks, absolute.
      features: kind of features, see `icefall_attn.data.features`.
      storage: "lilcom", "numpy", or "none" to check the audio and leave the features to the loader.
      speeds: of further copies of each utterance.
      longest: seconds; longer utterances are left out.
    """

    directory: Path
    features: str
    storage: str
    speeds: Tuple[float, ...]
    longest: float


class Chunk(NamedTuple):
    """What has become of a chunk.

    Attributes:
      path: its file of cuts.
      cuts: how many there are.
      seconds: of audio in them.
      read: seconds of audio that were read now; the rest was there.
      changed: cuts that were there and got other transcripts.
      left_out: id and reason of utterances that cannot be used.
    """

    path: Path
    cuts: int
    seconds: float
    read: float
    changed: int
    left_out: List[Tuple[str, str]]


def compute_chunk(plan: Plan, job: Tuple[int, Sequence[Utterance]]) -> Chunk:
    """Computes what is missing of a chunk; what is there gets the transcripts of now.

    Args:
      plan: see `Plan`.
      job: the index of the chunk and its utterances.

    Raises:
      OSError: if it cannot be written; the features that were written of it are removed.
    """
    index, utterances = job
    copies: Dict[str, List[Cut]] = {}
    left_out: List[Tuple[str, str]] = []
    for utterance in utterances:
        try:
            cut = make_cut(utterance, plan.longest)
        except Unusable as reason:
            left_out.append((utterance.id, str(reason)))
        else:
            faster = [cut.perturb_speed(speed) for speed in plan.speeds]
            copies[cut.id] = [cut, *faster]
    name = f"{index:05d}-{_digest(plan, [cuts[0] for cuts in copies.values()])}"
    path = plan.directory / f"{name}.jsonl.gz"
    archive = plan.directory / (f"{name}.lca" if plan.storage == "lilcom" else name)
    stored = _read_stored(path, archive, plan)
    changed = _renew_transcripts(stored, copies)
    missing = [cuts for name, cuts in copies.items() if name not in stored]
    computed: _Copies = {}
    if missing:
        computed, unreadable = _compute(plan, archive, missing, fresh=not stored)
        left_out += unreadable
    stored.update(computed)
    made = [cut for name in copies for cut in stored.get(name, [])]
    if computed or changed or not path.exists():
        lines = (json.dumps(cut, ensure_ascii=False) + "\n" for cut in made)
        write_lines((line.encode() for line in lines), path)
    copies_read = 1 if plan.storage == "none" else None
    return Chunk(
        path=path,
        cuts=len(made),
        seconds=sum(cut["duration"] for cut in made),
        read=sum(
            cut["duration"] for cuts in computed.values() for cut in cuts[:copies_read]
        ),
        changed=changed,
        left_out=left_out,
    )


# Cuts as their manifest has them, those of one utterance by its id.
_Copies = Dict[str, List[Dict[str, Any]]]


def _digest(plan: Plan, cuts: Iterable[Cut]) -> str:
    extractor = feature_extractor(plan.features)
    what = [extractor.name, extractor.to_dict(), plan.storage, plan.speeds]
    audio = [replace(cut, supervisions=[]).to_dict() for cut in cuts]
    text = json.dumps([what, str(plan.directory), audio], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _read_stored(path: Path, archive: Path, plan: Plan) -> _Copies:
    if not path.is_file() or not (plan.storage == "none" or archive.exists()):
        return {}
    cuts = [json.loads(line) for line in read_lines(path)]
    size = 1 + len(plan.speeds)
    groups = [cuts[first : first + size] for first in range(0, len(cuts), size)]
    return {group[0]["id"]: group for group in groups}


def _renew_transcripts(stored: _Copies, copies: Dict[str, List[Cut]]) -> int:
    """Puts the transcripts of ``copies`` into ``stored``; returns how many differ."""
    changed = 0
    for name, cuts in stored.items():
        for old, new in zip(cuts, copies[name]):
            supervisions = _as_stored(new)["supervisions"]
            changed += supervisions != old["supervisions"]
            old["supervisions"] = supervisions
    return changed


def _compute(
    plan: Plan, archive: Path, utterances: Iterable[List[Cut]], fresh: bool
) -> Tuple[_Copies, List[Tuple[str, str]]]:
    """Computes and stores features; returns the cuts, and what cannot be read."""
    if fresh:
        _remove(archive)
    made: _Copies = {}
    unreadable = []
    try:
        with _open_storage(plan, archive) as storage:
            for cuts in utterances:
                try:
                    if storage is None:
                        load_samples(cuts[0])  # that of the copies is the same
                    else:
                        cuts = [_with_features(plan, cut, storage) for cut in cuts]
                    made[cuts[0].id] = [cut.to_dict() for cut in cuts]
                except Unusable as reason:
                    unreadable.append((cuts[0].id, str(reason)))
        _sync(archive)
    except OSError as error:
        if fresh:
            _remove(archive)
        if error.errno is None:  # numpy's way to say that not all was written
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(archive))
        raise
    return made, unreadable


def _open_storage(plan: Plan, archive: Path) -> ContextManager:
    if plan.storage == "none":
        return nullcontext()
    if plan.storage == "lilcom":
        return LilcomChunkyWriter(archive, mode="ab")
    return NumpyFilesWriter(archive)


def _with_features(plan: Plan, cut: Cut, storage: FeaturesWriter) -> Cut:
    features = feature_extractor(plan.features).extract_from_samples_and_store(
        samples=load_samples(cut),
        storage=storage,
        sampling_rate=cut.sampling_rate,
        offset=cut.start,
        channel=cut.channel,
    )
    return replace(cut, features=features)


def _as_stored(cut: Cut) -> Dict[str, Any]:
    return json.loads(json.dumps(cut.to_dict()))  # as a manifest gives it back


def _remove(archive: Path) -> None:
    if archive.is_dir():
        shutil.rmtree(archive)
    archive.unlink(missing_ok=True)


def _sync(archive: Path) -> None:
    """Waits until features are on the disk, before a file says that they are."""
    files = archive.rglob("*.npy") if archive.is_dir() else [archive]
    for path in files:
        if path.exists():
            with open(path, "rb") as file:
                os.fsync(file.fileno())

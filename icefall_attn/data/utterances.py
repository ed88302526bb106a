"""Utterances on their way from manifests to cuts, and what makes one unusable."""

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Iterator, NamedTuple, Optional

import numpy as np
import soundfile
from lhotse import Recording, SupervisionSegment
from lhotse.cut import Cut

from icefall_attn.data.features import SAMPLE_RATE
from icefall_attn.data.manifests import read_lines
from icefall_attn.errors import UserError

# Seconds. Less than the shortest gives the encoder nothing to see; a manifest may round times.
SHORTEST = 0.1
TOLERANCE = 0.025


class Unusable(Exception):
    """An utterance that cannot be used; the message says why."""


class Utterance(NamedTuple):
    """A transcript and its recording as lines of their manifests.

    Attributes:
      id: of the transcript.
      supervision: its line.
      recording: the line of its recording; None if there is no one such recording.
      repeated: an earlier transcript has this id.
    """

    id: str
    supervision: bytes
    recording: Optional[bytes]
    repeated: bool


def read_utterances(recordings: Path, supervisions: Path) -> Iterator[Utterance]:
    """The transcripts of a manifest, one by one in its order, each with its recording.

    The recordings, which may come in another order, wait in a temporary database on the disk.

    Raises:
      UserError: if a file is missing or damaged, or the temporary directory full.
    """
    try:
        with closing(sqlite3.connect("")) as database:
            database.execute("CREATE TABLE recordings (id TEXT PRIMARY KEY, line BLOB)")
            # Of two recordings with one id, neither is sure to be meant.
            database.executemany(
                "INSERT INTO recordings VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET line = NULL",
                (
                    (_field(recordings, line, "id"), line)
                    for line in read_lines(recordings)
                ),
            )
            seen = set()
            for line in read_lines(supervisions):
                name = _field(supervisions, line, "id")
                found = database.execute(
                    "SELECT line FROM recordings WHERE id = ?",
                    (_field(supervisions, line, "recording_id"),),
                ).fetchone()
                # 64 bits of each of a million names collide once in 30 million corpora.
                repeated = hash(name) in seen
                seen.add(hash(name))
                yield Utterance(name, line, found and found[0], repeated)
    except sqlite3.Error as error:
        raise UserError(
            f"the temporary database of recordings: {error}; set TMPDIR to a directory with room"
        )


def make_cut(utterance: Utterance, longest: float) -> Cut:
    """The cut of one utterance, at `SAMPLE_RATE`, named as its transcript.

    Args:
      utterance: see `Utterance`.
      longest: seconds.

    Raises:
      Unusable: for what can be seen without reading the audio.
    """
    if utterance.repeated:
        raise Unusable("an earlier utterance has the same id")
    if utterance.recording is None:
        raise Unusable("there is not exactly one recording with its recording_id")
    try:
        spoken = SupervisionSegment.from_dict(json.loads(utterance.supervision))
        recording = Recording.from_dict(json.loads(utterance.recording))
    except Exception as error:  # lhotse checks nothing
        raise Unusable(f"its manifest is damaged: {error!r}")
    if not (spoken.text or "").strip():
        raise Unusable("its transcript is empty")
    if not SHORTEST <= spoken.duration <= longest:
        raise Unusable(
            f"it lasts {spoken.duration:g} s, not {SHORTEST:g} to {longest:g} s"
        )
    if spoken.start < -TOLERANCE or spoken.end > recording.duration + TOLERANCE:
        raise Unusable(
            f"it goes from {spoken.start:g} to {spoken.end:g} s"
            f" of a recording of {recording.duration:g} s"
        )
    cut = recording.to_cut()
    cut.supervisions = [spoken]
    if recording.sampling_rate != SAMPLE_RATE:
        cut = cut.resample(SAMPLE_RATE)
    (cut,) = cut.trim_to_supervisions(keep_overlapping=False)
    return cut.with_id(spoken.id)


def load_samples(cut: Cut) -> np.ndarray:
    """(1, samples) of a cut.

    Raises:
      Unusable: if the audio cannot be read, is not what the manifest says, or not finite.
    """
    for source in cut.recording.sources:
        if source.type == "file":
            _check_header(cut.recording, source.source)
    try:
        samples = cut.load_audio()
    except Exception as error:  # of lhotse, libsndfile or the system
        raise Unusable(_unreadable(cut.recording.sources[0].source, error))
    if not np.isfinite(samples).all():
        raise Unusable("its audio holds samples that are not numbers")
    return samples


def _check_header(recording: Recording, path: str) -> None:
    try:
        header = soundfile.info(path)
    except Exception as error:
        raise Unusable(_unreadable(path, error))
    expected = recording.duration
    for transform in reversed(recording.transforms or []):
        # back to the rate and speed of the file
        _, expected = transform.reverse_timestamps(0, expected, recording.sampling_rate)
    if not recording.transforms and header.samplerate != recording.sampling_rate:
        raise Unusable(
            f"{path} has {header.samplerate} Hz, its manifest says {recording.sampling_rate}"
        )
    if abs(header.duration - expected) > TOLERANCE:
        raise Unusable(
            f"{path} lasts {header.duration:.3f} s, its manifest says {expected:.3f}"
        )
    # Libsndfile reads what there is of a truncated file and notes it here. A writer that could not
    # know the length, as into a pipe, leaves the largest number there is.
    short = re.search(r"data *: (\d+) \(should be (\d+)\)", header.extra_info)
    if short and int(short[2]) < int(short[1]) < 0x7FFF0000:
        raise Unusable(f"{path} is truncated: {short[2]} of {short[1]} bytes are there")


def _unreadable(path: object, error: Exception) -> str:
    reason = (str(error).strip() or repr(error)).splitlines()[0]
    if isinstance(path, str) and not Path(path).exists():
        reason = "no such file"
    if isinstance(
        error, TypeError
    ):  # lhotse's, where libsndfile cannot tell the length
        reason = "it is damaged or ends too early"
    return f"it cannot be read from {path}: {reason}"


def _field(path: Path, line: bytes, name: str) -> str:
    try:
        return str(json.loads(line)[name])
    except (ValueError, KeyError, TypeError):
        raise UserError(
            f"{path} has a line that is no item of a manifest: {line[:60]!r}"
        )

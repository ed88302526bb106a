"""From what a corpus's own files list to manifests: audio looked at, unusable utterances left out and named."""

import logging
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Dict, Iterable, List, NamedTuple, Sequence, Tuple, Union

from lhotse import Recording, SupervisionSegment

from icefall_attn.data.audio import use_libsndfile
from icefall_attn.data.manifests import write_part
from icefall_attn.errors import UserError
from icefall_attn.files import atomic_write
from icefall_attn.progress import progress_bar

__all__ = ["Listed", "Utterance", "look_at", "subset", "write_utterances"]

Utterance = Tuple[Recording, SupervisionSegment]


class Listed(NamedTuple):
    """An utterance as a corpus lists it: one file of audio and what is said in it."""

    id: str
    audio: Path
    text: str
    speaker: str
    language: str


def look_at(
    listed: Iterable[Listed], report: Path, max_bad_share: float, nj: int = 1
) -> List[Utterance]:
    """The utterances whose audio can be used, in their order.

    Args:
      listed: the utterances.
      report: file for the others, ``ID<tab>REASON`` on each line; there is none if all are good.
      max_bad_share: of the utterances that may be left out.
      nj: files looked at side by side.

    Raises:
      UserError: nothing is listed, or too much of it cannot be used.
    """
    use_libsndfile()
    good: Dict[str, Utterance] = {}
    bad: List[Tuple[str, str]] = []
    with ThreadPoolExecutor(nj) as executor:
        found = executor.map(lambda one: (one, _look_at(one)), listed)
        for one, recording in progress_bar(found, desc="files"):
            if one.id in good:
                first = good[one.id][1].text
                said = f"{first!r} and then {one.text!r}" if one.text != first else ""
                bad.append(
                    (
                        one.id,
                        f"listed twice{said and ': '}{said or f', again as {one.audio}'}",
                    )
                )
            elif isinstance(recording, str):
                bad.append((one.id, recording))
            else:
                good[one.id] = recording, _supervision(one, recording)
    count = len(good) + len(bad)
    report.unlink(missing_ok=True)
    if bad:
        with atomic_write(report) as file:
            file.writelines(f"{id}\t{reason}\n" for id, reason in bad)
        logging.warning("left out %d of %d utterances: %s", len(bad), count, report)
    if len(bad) > max_bad_share * count:
        raise UserError(
            f"{len(bad)} of {count} utterances cannot be used, named in {report}; more than"
            f" --max-bad-share {max_bad_share:g}"
        )
    return list(good.values())


def subset(utterances: Sequence[Utterance], hours: float) -> List[Utterance]:
    """About so many hours of them, drawn at random, always the same ones; all for 0 hours."""
    if hours == 0:
        return list(utterances)
    order = list(range(len(utterances)))
    random.Random(0).shuffle(order)
    taken, seconds = [], 0.0
    for index in order:
        if seconds >= 3600 * hours:
            break
        taken.append(index)
        seconds += utterances[index][0].duration
    return [utterances[index] for index in sorted(taken)]


def write_utterances(
    manifest_dir: Path, prefix: str, part: str, utterances: Sequence[Utterance]
) -> None:
    """Writes the manifests of one part of a corpus and says in the log what is in it.

    Raises:
      UserError: there is nothing in it.
    """
    if not utterances:
        raise UserError(f"there are no utterances for the part {part!r}")
    recordings, supervisions = zip(*utterances)
    write_part(manifest_dir, prefix, part, recordings, supervisions)
    logging.info(
        "%s: %d utterances of %d speakers, %.2f hours",
        part,
        len(utterances),
        len({s.speaker for s in supervisions}),
        sum(r.duration for r in recordings) / 3600,
    )


def _supervision(one: Listed, recording: Recording) -> SupervisionSegment:
    return SupervisionSegment(
        id=one.id,
        recording_id=one.id,
        start=0.0,
        duration=recording.duration,
        text=one.text,
        language=one.language,
        speaker=one.speaker,
    )


def _look_at(one: Listed) -> Union[Recording, str]:
    """The recording, or why there is none."""
    if not one.audio.is_file():
        return f"{one.audio} is missing"
    try:
        recording = Recording.from_file(one.audio, recording_id=one.id)
    except Exception as error:  # whatever lhotse makes of libsndfile's complaint
        return f"{one.audio} cannot be read as audio: {' '.join(str(error).split())}"
    return recording if recording.num_samples > 0 else f"{one.audio} holds no samples"

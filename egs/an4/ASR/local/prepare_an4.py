#!/usr/bin/env python3
"""Manifests of CMU AN4 in its official `an4_sphere` layout.

    prepare_an4.py --corpus-dir download --output-dir data/manifests

reads DIR/an4/{etc,wav} or DIR/{etc,wav} and writes
`an4_{recordings,supervisions}_{train,dev,test}.jsonl.gz`. The dev set is eight speakers taken out
of the training set, so that models are chosen without a look at the test set.
"""

import logging
import re
from pathlib import Path
from typing import List, Tuple

from lhotse import Recording, SupervisionSegment

from icefall_attn.data.audio import use_libsndfile
from icefall_attn.data.features import SAMPLE_RATE
from icefall_attn.data.manifests import write_part
from icefall_attn.errors import UserError
from icefall_attn.files import atomic_write
from icefall_attn.program import run_program

# Picked from the 74 training speakers before any model was trained: three women and five men, about
# as many of each as in the training and test sets.
DEV_SPEAKERS = ("fjdn", "flrp", "fsaf2", "mcen", "mdxs", "mjda", "mmkw", "mtje")

UTTERANCES = {"train": 948, "test": 130}

Utterance = Tuple[Recording, SupervisionSegment]


def prepare_an4(corpus_dir: Path, output_dir: Path) -> None:
    """Writes the manifests of the three parts.

    Args:
      corpus_dir: of the corpus, or its parent.
      output_dir: of the manifests.

    Raises:
      UserError: if a file is missing or damaged or the lists do not agree.
    """
    use_libsndfile()
    corpus_dir = find_corpus(corpus_dir)
    everything = read_part(corpus_dir, "train")
    speakers = {supervision.speaker for _, supervision in everything}
    for speaker in DEV_SPEAKERS:
        if speaker not in speakers:
            raise UserError(
                f"{corpus_dir}: the training speaker {speaker!r}, one of the dev set, is missing;"
                " get the whole corpus"
            )
    parts = {
        "train": [u for u in everything if u[1].speaker not in DEV_SPEAKERS],
        "dev": [u for u in everything if u[1].speaker in DEV_SPEAKERS],
        "test": read_part(corpus_dir, "test"),
    }
    dictionary = corpus_dir / "etc" / "an4.dic"
    if not dictionary.is_file():
        raise UserError(f"{dictionary}, the pronouncing dictionary, is missing")
    with atomic_write(output_dir / "an4.dic") as file:
        file.write(dictionary.read_text(encoding="utf-8"))
    for part, utterances in parts.items():
        recordings, supervisions = zip(*utterances)
        write_part(output_dir, "an4", part, recordings, supervisions)
        logging.info(
            "%s: %d utterances of %d speakers, %.2f hours",
            part,
            len(utterances),
            len({s.speaker for s in supervisions}),
            sum(r.duration for r in recordings) / 3600,
        )


def find_corpus(directory: Path) -> Path:
    """The directory that holds `etc` and `wav`: ``directory`` itself or `an4` in it."""
    for candidate in (directory / "an4", directory):
        if (candidate / "etc").is_dir() and (candidate / "wav").is_dir():
            return candidate.resolve()
    raise UserError(
        f"{directory} holds no AN4 corpus: neither {directory}/an4/etc with {directory}/an4/wav"
        f" nor {directory}/etc with {directory}/wav"
    )


def read_part(corpus_dir: Path, part: str) -> List[Utterance]:
    """The utterances of `train` or `test`, checked against each other and the audio files."""
    file_ids = read_file_ids(corpus_dir, part)
    texts_file = corpus_dir / "etc" / f"an4_{part}.transcription"
    texts = _read_lines(texts_file)
    if len(texts) != len(file_ids):
        raise UserError(
            f"{texts_file} has {len(texts)} lines for {len(file_ids)} utterances"
        )
    utterances = []
    for number, (file_id, line) in enumerate(zip(file_ids, texts), 1):
        name = file_id.rsplit("/", 1)[-1]
        text, text_name = parse_transcription(line, f"{texts_file}, line {number}")
        if text_name != name:
            raise UserError(
                f"{texts_file}, line {number}: {text_name!r} where the list has {name!r}"
            )
        recording = _read_recording(corpus_dir / "wav" / f"{file_id}.sph", name)
        supervision = SupervisionSegment(
            id=name,
            recording_id=name,
            start=0.0,
            duration=recording.duration,
            text=text,
            language="English",
            speaker=file_id.split("/")[-2],
            gender={"f": "female", "m": "male"}[file_id.split("/")[-2][0]],
        )
        utterances.append((recording, supervision))
    return utterances


def read_file_ids(corpus_dir: Path, part: str) -> List[str]:
    """The corpus's own list of `train` or `test`: `an4_clstk/SPEAKER/UTTERANCE` on each line."""
    path = corpus_dir / "etc" / f"an4_{part}.fileids"
    file_ids = _read_lines(path)
    if len(file_ids) != UTTERANCES[part]:
        raise UserError(
            f"{path} lists {len(file_ids)} utterances; the corpus has {UTTERANCES[part]}"
        )
    for file_id in file_ids:
        if not re.fullmatch(r"\w+/[fm]\w+/[\w-]+", file_id):
            raise UserError(f"{path}: {file_id!r} is no FOLDER/SPEAKER/UTTERANCE")
    return file_ids


def parse_transcription(line: str, where: str) -> Tuple[str, str]:
    """`<s> GO </s> (an253-fash-b)` gives `GO` and `an253-fash-b`."""
    match = re.fullmatch(r"(?:<s>)?\s*(.*?)\s*(?:</s>)?\s*\((\S+)\)", line)
    if match is None:
        raise UserError(f"{where}: expected 'WORDS (utterance)', found {line!r}")
    return " ".join(match[1].split()), match[2]


def _read_lines(path: Path) -> List[str]:
    if not path.is_file():
        raise UserError(f"{path} is missing; get the whole corpus")
    return [line.strip() for line in path.read_text().splitlines() if line.strip()]


def _read_recording(path: Path, name: str) -> Recording:
    if not path.is_file():
        raise UserError(f"{path} is missing; get the whole corpus")
    try:
        recording = Recording.from_file(path, recording_id=name)
    except Exception as error:  # whatever lhotse makes of libsndfile's complaint
        raise UserError(f"{path} cannot be read as audio: {error}")
    if recording.sampling_rate != SAMPLE_RATE or recording.num_samples == 0:
        raise UserError(
            f"{path}: expected speech at {SAMPLE_RATE} Hz, found {recording.num_samples} samples"
            f" at {recording.sampling_rate} Hz"
        )
    return recording


if __name__ == "__main__":
    run_program(prepare_an4, __doc__)

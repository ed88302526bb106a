#!/usr/bin/env python3
"""Manifests of LibriSpeech, or of pieces of it, in its official layout.

    prepare_librispeech.py --corpus-dir download --output-dir data/manifests \\
        --parts train-clean-100 dev-clean test-clean

reads DIR/LibriSpeech/PART/SPEAKER/CHAPTER/*.{trans.txt,flac} (or DIR/PART/...) and writes
`librispeech_{recordings,supervisions}_X.jsonl.gz`, where X is `train`, all training parts together;
`dev`, all dev parts; and each test part by its own name. If no dev part is asked for, every 20th
training speaker makes the dev set. Utterances whose audio cannot be read are left out and named in
`librispeech_left-out_X.txt`.
"""

import logging
from pathlib import Path
from typing import Dict, Iterator, List, Sequence, Tuple

from icefall_attn.data.listing import (
    Listed,
    Utterance,
    look_at,
    subset,
    write_utterances,
)
from icefall_attn.errors import UserError
from icefall_attn.program import run_program

PARTS = (
    "train-clean-100 train-clean-360 train-other-500 train-clean-5"
    " dev-clean dev-other dev-clean-2 test-clean test-other"
).split()

# Utterances and words of the whole test sets.
WHOLE = {"test-clean": (2620, 52576), "test-other": (2939, 52343)}

DEV_SPEAKERS = 20  # one of so many, if there is no dev part


def prepare_librispeech(
    corpus_dir: Path,
    output_dir: Path,
    parts: List[str],
    subset_hours: float = 0.0,
    max_bad_share: float = 0.01,
    nj: int = 4,
) -> None:
    """Writes the manifests.

    Args:
      corpus_dir: of the corpus, or its parent.
      output_dir: of the manifests.
      parts: of the corpus, such as dev-clean.
      subset_hours: of training speech, drawn at random; 0 takes all.
      max_bad_share: of a set's utterances that may be left out.
      nj: files read side by side.

    Raises:
      UserError: on what is missing, damaged or not LibriSpeech.
    """
    check_parts(parts)
    corpus_dir = find_corpus(corpus_dir)
    sets: Dict[str, List[Utterance]] = {}
    for name, members in grouped(parts).items():
        listed = (one for part in members for one in read_part(corpus_dir, part))
        report = output_dir / f"librispeech_left-out_{name}.txt"
        sets[name] = look_at(listed, report, max_bad_share, nj)
        check_whole(name, sets[name])
    if "dev" not in sets:
        sets["train"], sets["dev"] = hold_out(sets["train"])
        logging.info("dev: taken from the training speakers, as no dev part is given")
    sets["train"] = subset(sets["train"], subset_hours)
    for name, utterances in sets.items():
        write_utterances(output_dir, "librispeech", name, utterances)


def check_parts(parts: Sequence[str]) -> None:
    """Raises `UserError` for a name that is no part of LibriSpeech, or if none is for training."""
    for part in parts:
        if part not in PARTS:
            raise UserError(f"--parts: {part!r} is none of {', '.join(PARTS)}")
    if not any(part.startswith("train") for part in parts):
        raise UserError(f"--parts {' '.join(parts)} has no training part")


def grouped(parts: Sequence[str]) -> Dict[str, List[str]]:
    """Which parts make which set."""
    sets: Dict[str, List[str]] = {}
    for part in parts:
        kind = part.split("-")[0]
        sets.setdefault(part if kind == "test" else kind, []).append(part)
    return sets


def find_corpus(directory: Path) -> Path:
    """The directory of the parts: ``directory`` itself or `LibriSpeech` in it."""
    for candidate in (directory / "LibriSpeech", directory):
        if any((candidate / part).is_dir() for part in PARTS):
            return candidate.resolve()
    raise UserError(
        f"{directory} holds no LibriSpeech: no {directory}/LibriSpeech/PART and no"
        f" {directory}/PART, PART being one of {', '.join(PARTS)}"
    )


def read_part(corpus_dir: Path, part: str) -> Iterator[Listed]:
    """What the transcripts of one part list, by speaker and chapter."""
    transcripts = sorted((corpus_dir / part).glob("*/*/*.trans.txt"))
    if not transcripts:
        raise UserError(f"{corpus_dir / part} holds no transcripts; get this part")
    for path in transcripts:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            name, _, text = line.strip().partition(" ")
            if not name.startswith(path.name.split(".")[0]):
                raise UserError(
                    f"{path}, line {number}: expected 'UTTERANCE WORDS', found {line!r}"
                )
            audio = path.with_name(f"{name}.flac")
            yield Listed(name, audio, text, name.split("-")[0], "English")


def check_whole(name: str, utterances: Sequence[Utterance]) -> None:
    """Raises `UserError` if a whole test set does not have the words that it is known to have."""
    if name not in WHOLE:
        return
    count, words = WHOLE[name]
    if len(utterances) != count:
        logging.warning(
            "%s: %d of its %d utterances; error rates are not those of the whole set",
            name,
            len(utterances),
            count,
        )
        return
    found = sum(len(supervision.text.split()) for _, supervision in utterances)
    if found != words:
        raise UserError(f"{name} has {found} words, not {words}; get the corpus again")


def hold_out(
    utterances: Sequence[Utterance],
) -> Tuple[List[Utterance], List[Utterance]]:
    """Utterances for training, and those of every 20th speaker."""
    speakers = sorted({supervision.speaker for _, supervision in utterances})
    dev = set(speakers[DEV_SPEAKERS // 2 :: DEV_SPEAKERS])
    return (
        [u for u in utterances if u[1].speaker not in dev],
        [u for u in utterances if u[1].speaker in dev],
    )


if __name__ == "__main__":
    run_program(prepare_librispeech, __doc__)

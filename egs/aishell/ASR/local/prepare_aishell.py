#!/usr/bin/env python3
"""Manifests of AISHELL-1 in its official layout.

    prepare_aishell.py --corpus-dir download --output-dir data/manifests

reads `wav/{train,dev,test}/SPEAKER/*.wav` and `transcript/aishell_transcript_v0.8.txt` in DIR,
DIR/data_aishell or DIR/aishell/data_aishell and writes
`aishell_{recordings,supervisions}_{train,dev,test}.jsonl.gz`. Utterances whose audio cannot be read
are left out and named in `aishell_left-out_PART.txt`; files without a transcript, of which the
corpus has some, are counted. The corpus's lexicon, if `resource_aishell` is beside `data_aishell`,
becomes `aishell.dic`.
"""

import logging
import unicodedata
from pathlib import Path
from typing import Dict, Iterator, List, Sequence

from icefall_attn.data.listing import (
    Listed,
    Utterance,
    look_at,
    subset,
    write_utterances,
)
from icefall_attn.errors import UserError
from icefall_attn.files import atomic_write
from icefall_attn.program import run_program

PARTS = ("train", "dev", "test")
TRANSCRIPT = Path("transcript/aishell_transcript_v0.8.txt")
LEXICON = Path("resource_aishell/lexicon.txt")  # in the corpus's other archive

# Utterances and characters of the whole test set.
WHOLE_TEST = (7176, 104765)


def prepare_aishell(
    corpus_dir: Path,
    output_dir: Path,
    subset_hours: float = 0.0,
    max_bad_share: float = 0.01,
    nj: int = 4,
) -> None:
    """Writes the manifests.

    Args:
      corpus_dir: of the corpus, or its parent.
      output_dir: of the manifests.
      subset_hours: of training speech, drawn at random; 0 takes all.
      max_bad_share: of a set's utterances that may be left out.
      nj: files read side by side.

    Raises:
      UserError: on what is missing, damaged or not AISHELL-1.
    """
    corpus_dir = find_corpus(corpus_dir)
    texts = read_transcripts(corpus_dir / TRANSCRIPT)
    for part in PARTS:
        report = output_dir / f"aishell_left-out_{part}.txt"
        listed = read_part(corpus_dir, part, texts)
        utterances = look_at(listed, report, max_bad_share, nj)
        if part == "train":
            utterances = subset(utterances, subset_hours)
        if part == "test":
            check_whole(utterances)
        write_utterances(output_dir, "aishell", part, utterances)
    lexicon, dictionary = corpus_dir.parent / LEXICON, output_dir / "aishell.dic"
    if lexicon.is_file():
        with atomic_write(dictionary) as file:
            file.write(lexicon.read_text(encoding="utf-8"))
    else:
        dictionary.unlink(missing_ok=True)


def find_corpus(directory: Path) -> Path:
    """The directory that holds `wav` and `transcript`."""
    below = (Path("aishell/data_aishell"), Path("data_aishell"), Path())
    for candidate in (directory / name for name in below):
        if (candidate / "wav").is_dir() and (candidate / TRANSCRIPT).is_file():
            return candidate.resolve()
    raise UserError(
        f"{directory} holds no AISHELL-1: neither it nor data_aishell or aishell/data_aishell in it"
        f" has wav and {TRANSCRIPT}"
    )


def read_transcripts(path: Path) -> Dict[str, List[str]]:
    """Texts by utterance: words of hanzi; Latin letters, some of which are of full width, in capitals.

    An utterance should have one, which may be empty: whoever uses it finds out.
    """
    texts: Dict[str, List[str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        name, *words = line.split()
        text = unicodedata.normalize("NFKC", " ".join(words)).upper()
        texts.setdefault(name, []).append(text)
    return texts


def read_part(
    corpus_dir: Path, part: str, texts: Dict[str, List[str]]
) -> Iterator[Listed]:
    """The files of one part that have a transcript, by speaker; once for each transcript."""
    silent = 0
    files = sorted((corpus_dir / "wav" / part).glob("*/*.wav"))
    if not files and any((corpus_dir / "wav").glob("*.tar.gz")):
        raise UserError(
            f"{corpus_dir}/wav holds archives: unpack them (for f in *.tar.gz; do tar xf $f; done)"
        )
    for audio in files:
        for text in texts.get(audio.stem, []):
            yield Listed(audio.stem, audio, text, audio.parent.name, "Chinese")
        silent += audio.stem not in texts
    if silent:
        logging.info("%s: %d of %d files have no transcript", part, silent, len(files))


def check_whole(utterances: Sequence[Utterance]) -> None:
    """Raises `UserError` if the whole test set does not have the characters that it is known to have."""
    count, characters = WHOLE_TEST
    if len(utterances) != count:
        logging.warning(
            "test: %d of its %d utterances; error rates are not those of the whole set",
            len(utterances),
            count,
        )
        return
    found = sum(len("".join(s.text.split())) for _, s in utterances)
    if found != characters:
        raise UserError(
            f"test has {found} characters, not {characters}; get the corpus again"
        )


if __name__ == "__main__":
    run_program(prepare_aishell, __doc__)

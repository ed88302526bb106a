#!/usr/bin/env python3
"""Checks that cuts can be trained on and decoded.

    validate_data.py --cuts data/fbank/an4_cuts_train.jsonl.gz [more] --lang-dir data/lang

Faults: two utterances of one name; not exactly one transcript, or one that does not span its
utterance; features that are missing, not finite, of the wrong size or number. Features are loaded of
`--load` utterances, chosen at random; the manifest is checked for all. Cuts without any features are
checked for the audio that they will be computed from.

Counted, shown and listed in `an4_cuts_train.misfits.txt`: characters that no token covers, empty
transcripts, and more tokens than encoder frames, which no loss can align. Of these, training data (a
name with `_train`) may have 1 %, dropped by the trainer.
"""

import logging
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Set

import torch
from lhotse.cut import Cut

from icefall_attn.data.corpus import Corpus, open_corpus
from icefall_attn.data.features import FRAME_SHIFT
from icefall_attn.data.sample import RandomSample
from icefall_attn.data.tokenizer import UNK_ID, Tokenizer, load_tokenizer
from icefall_attn.errors import UserError
from icefall_attn.files import atomic_write
from icefall_attn.nn.lengths import subsampled
from icefall_attn.program import run_program
from icefall_attn.progress import progress_bar

# Seconds; a manifest may round times.
TOLERANCE = 0.002
DROPPED_IN_TRAINING = 0.01
LOADED = 3000


def validate_data(cuts: List[str], lang_dir: Path, load: int = LOADED) -> None:
    """Checks files of cuts.

    Args:
      cuts: files of cuts with features.
      lang_dir: of the tokens.
      load: utterances of each file whose features are loaded.

    Raises:
      UserError: on the first file with a fault.
    """
    if load < 0:
        raise UserError(f"--load is {load}; give 0 or more")
    torch.set_num_threads(1)
    tokenizer = load_tokenizer(lang_dir)
    for path in cuts:
        validate(path, tokenizer, load)


class Faults:
    """What is wrong with a file: the first fault, and how many there are."""

    def __init__(self) -> None:
        self.first, self.count = "", 0

    def add(self, found: Iterable[str]) -> None:
        for fault in found:
            self.first = self.first or fault
            self.count += 1


def validate(path: str, tokenizer: Tokenizer, load: int = LOADED) -> None:
    """Checks one file of cuts, however large.

    Args:
      path: the file.
      tokenizer: of the model to be trained.
      load: how many utterances' features are loaded.

    Raises:
      UserError: that shows the first fault and says how many there are.
    """
    corpus = open_corpus(path)
    faults = Faults()
    misfits: Dict[str, List[str]] = {}
    # 64 bits of each of a million names collide once in 30 million corpora.
    names: Set[int] = set()
    chosen: RandomSample[Cut] = RandomSample(load)
    for cut in corpus:
        if hash(cut.id) in names:
            faults.add([f"the utterance {cut.id!r} is there twice"])
        names.add(hash(cut.id))
        faults.add(_find_faults(cut, corpus))
        for kind in _find_misfits(cut, tokenizer):
            misfits.setdefault(kind, []).append(cut.id)
        chosen.add(cut)
    for cut in progress_bar(chosen.items, desc="features", unit="utterance"):
        faults.add(_find_faults_of_features(cut, corpus))
    if faults.count:
        raise UserError(f"{path}: {faults.first} (faults in all: {faults.count})")
    _list_misfits(path, misfits)
    for kind, ids in misfits.items():
        what = f"{len(ids)} of {chosen.seen} utterances with {kind}, e.g. {ids[0]!r}"
        logging.info("%s: %s", path, what)
        if "_train" in Path(path).name and len(ids) > DROPPED_IN_TRAINING * chosen.seen:
            raise UserError(f"{path}: {what}; text and tokens do not fit")
    logging.info(
        "%s: %d utterances, sound; features of %d loaded",
        *(path, chosen.seen, len(chosen.items)),
    )


def _find_faults(cut: Cut, corpus: Corpus) -> Iterator[str]:
    """What is wrong with the manifest."""
    try:
        corpus.check(cut)
    except UserError as error:
        yield str(error).removeprefix(f"{corpus.where}: ")
        return
    spoken = cut.supervisions[0]
    if max(abs(spoken.start), abs(spoken.duration - cut.duration)) > TOLERANCE:
        yield (
            f"{cut.id!r} lasts {cut.duration} s but its transcript goes from"
            f" {spoken.start} to {spoken.end} s"
        )
    if cut.has_features and cut.features.duration < cut.duration - FRAME_SHIFT:
        yield f"{cut.id!r} lasts {cut.duration} s, its features {cut.features.duration} s"


def _find_faults_of_features(cut: Cut, corpus: Corpus) -> Iterator[str]:
    """What is wrong with the features, which are loaded or computed."""
    try:
        features = corpus.load(cut)
    except UserError as error:
        yield str(error).removeprefix(f"{corpus.where}: ")
        return
    if abs(len(features) - cut.duration / FRAME_SHIFT) > 1:
        yield f"{cut.id!r} has {len(features)} frames in {cut.duration} s"
    if not torch.isfinite(features).all():
        yield f"{cut.id!r} has features that are not finite"


def _find_misfits(cut: Cut, tokenizer: Tokenizer) -> Iterator[str]:
    """In what its transcript does not fit the tokens or the audio."""
    if len(cut.supervisions) != 1:
        return
    text = cut.supervisions[0].text or ""
    tokens = tokenizer.encode(text)
    # An `<unk>` that somebody wrote is no surprise.
    if tokens.count(UNK_ID) > text.count("<unk>"):
        yield "characters that no token covers"
    if not tokens:
        yield "an empty transcript"
    if len(tokens) > subsampled(round(cut.duration / FRAME_SHIFT)):
        yield "more tokens than encoder frames"


def _list_misfits(path: str, misfits: Dict[str, List[str]]) -> None:
    """Writes them beside the cuts; without any, removes what an earlier run has written."""
    listed = Path(path.removesuffix(".jsonl.gz") + ".misfits.txt")
    if misfits:
        with atomic_write(listed) as file:
            for kind, ids in misfits.items():
                file.writelines(f"{name}\t{kind}\n" for name in ids)
    elif listed.exists():
        listed.unlink()


if __name__ == "__main__":
    run_program(validate_data, __doc__)

#!/usr/bin/env python3
"""Checks that cuts can be trained on and decoded.

    validate_data.py --cuts data/fbank/an4_cuts_train.jsonl.gz [more] --lang-dir data/lang

Faults: two utterances of one name; not exactly one transcript, or one that does not span its
utterance; features that are missing, not finite, of the wrong size or number. Counted and shown:
characters that no token covers, empty transcripts, and more tokens than encoder frames, which no
loss can align. Of these, training data (a name with `_train`) may have 1 %, dropped by the trainer.
"""

import argparse
import logging
from pathlib import Path
from typing import Dict, Iterator, List, Set

import torch
from lhotse.cut import Cut

from icefall_attn.data.corpus import Corpus
from icefall_attn.data.features import FRAME_SHIFT
from icefall_attn.data.tokenizer import UNK_ID, Tokenizer, load_tokenizer
from icefall_attn.errors import UserError, run_main
from icefall_attn.nn.lengths import subsampled

# Seconds; a manifest may round times.
TOLERANCE = 0.002
DROPPED_IN_TRAINING = 0.01


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--cuts", nargs="+", required=True, metavar="FILE", help="cuts with features"
    )
    parser.add_argument(
        "--lang-dir", type=Path, required=True, metavar="DIR", help="of the tokens"
    )
    args = parser.parse_args()
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    torch.set_num_threads(1)
    tokenizer = load_tokenizer(args.lang_dir)
    for path in args.cuts:
        validate(path, tokenizer)


def validate(path: str, tokenizer: Tokenizer) -> None:
    """Checks one file of cuts.

    Raises:
      UserError: that shows the first fault and says how many there are.
    """
    faults: List[str] = []
    misfits: Dict[str, List[str]] = {}
    names: Set[str] = set()
    corpus = Corpus([path])
    count = 0
    for cut in corpus:
        count += 1
        if cut.id in names:
            faults.append(f"the utterance {cut.id!r} is there twice")
        names.add(cut.id)
        faults.extend(_find_faults(cut, corpus))
        for kind in _find_misfits(cut, tokenizer):
            misfits.setdefault(kind, []).append(cut.id)
    if faults:
        raise UserError(f"{path}: {faults[0]} (faults in all: {len(faults)})")
    for kind, ids in misfits.items():
        what = f"{len(ids)} of {count} utterances with {kind}, e.g. {ids[0]!r}"
        logging.info("%s: %s", path, what)
        if "_train" in Path(path).name and len(ids) > DROPPED_IN_TRAINING * count:
            raise UserError(f"{path}: {what}; text and tokens do not fit")
    logging.info("%s: %d utterances, sound", path, count)


def _find_faults(cut: Cut, corpus: Corpus) -> Iterator[str]:
    try:
        features = corpus.load(cut)
    except UserError as error:
        yield str(error)
        return
    if abs(len(features) - cut.duration / FRAME_SHIFT) > 1:
        yield f"{cut.id!r} has {len(features)} frames in {cut.duration} s"
    if not torch.isfinite(features).all():
        yield f"{cut.id!r} has features that are not finite"
    spoken = cut.supervisions[0]
    if max(abs(spoken.start), abs(spoken.duration - cut.duration)) > TOLERANCE:
        yield (
            f"{cut.id!r} lasts {cut.duration} s but its transcript goes from"
            f" {spoken.start} to {spoken.end} s"
        )


def _find_misfits(cut: Cut, tokenizer: Tokenizer) -> Iterator[str]:
    if len(cut.supervisions) != 1 or not cut.has_features:
        return
    text = cut.supervisions[0].text or ""
    tokens = tokenizer.encode(text)
    # An `<unk>` that somebody wrote is no surprise.
    if tokens.count(UNK_ID) > text.count("<unk>"):
        yield "characters that no token covers"
    if not tokens:
        yield "an empty transcript"
    if len(tokens) > subsampled(cut.num_frames):
        yield "more tokens than encoder frames"


if __name__ == "__main__":
    run_main(main)

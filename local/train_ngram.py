#!/usr/bin/env python3
"""A word n-gram model in ARPA format, from training text only.

    train_ngram.py --text data/lang/transcript_words.txt --output data/lm/3-gram.arpa
    train_ngram.py --supervisions data/manifests/aishell_supervisions_train.jsonl.gz \\
        --unit char --output data/lm/3-gram.arpa

Smoothing is interpolated modified Kneser-Ney. The text is read once and kept as numbers.
"""

import logging
import re
from itertools import chain
from pathlib import Path
from typing import Iterator, List, Literal

from icefall_attn.data.manifests import read_manifest, refuse_held_out
from icefall_attn.data.sample import RandomSample
from icefall_attn.errors import UserError
from icefall_attn.ngram import count_ngrams, kneser_ney, prune, write_arpa
from icefall_attn.program import run_program


def train_ngram(
    output: Path,
    supervisions: List[Path] = [],
    text: List[Path] = [],
    order: int = 3,
    unit: Literal["word", "char"] = "word",
    min_count: int = 1,
    max_texts: int = 100_000,
) -> None:
    """Estimates a model and writes it.

    Args:
      output: the ARPA file.
      supervisions: manifests of the training set.
      text: or texts, a sentence on each line.
      order: longest n-grams.
      unit: what white space separates, or characters (Chinese).
      min_count: n-grams of two words or more that occur less often are left out.
      max_texts: of more texts, a random choice of N is taken (1 GB of memory is enough for
        100000).

    Raises:
      UserError: no text, both kinds of text, or text of a dev or test set.
    """
    if order < 1:
        raise UserError(f"--order must be at least 1, not {order}")
    if bool(supervisions) == bool(text):
        raise UserError("give either --supervisions or --text")
    refuse_held_out([*supervisions, *text], "n-grams")
    texts = chain(
        chain.from_iterable(map(manifest_texts, supervisions)),
        chain.from_iterable(map(file_texts, text)),
    )
    for name, value in (("--min-count", min_count), ("--max-texts", max_texts)):
        if value < 1:
            raise UserError(f"{name} must be at least 1, not {value}")
    sample: RandomSample[str] = RandomSample(max_texts)
    for each in texts:
        sample.add(each)
    if sample.seen > max_texts:
        logging.info("%d of %d texts are taken", max_texts, sample.seen)
    split = str.split if unit == "word" else characters
    words, orders = count_ngrams(map(split, sample.items), order)
    orders, estimates = prune(orders, kneser_ney(orders), min_count)
    write_arpa(output, words, orders, estimates)
    counts = ", ".join(str(len(grams.word)) for grams in orders)
    logging.info("%s: n-grams of orders 1 to %d: %s", output, order, counts)


def manifest_texts(path: Path) -> Iterator[str]:
    """The texts of a manifest of supervisions."""
    return (s.text or "" for s in read_manifest(path, lazy=True))


def file_texts(path: Path) -> Iterator[str]:
    """The lines of a text file."""
    if not path.is_file():
        raise UserError(f"--text {path} is missing")
    with open(path, encoding="utf-8") as file:
        yield from file


def characters(text: str) -> List[str]:
    """The characters without white space; ``<unk>`` is one."""
    return [c for word in text.split() for c in re.findall("<unk>|.", word)]


if __name__ == "__main__":
    run_program(train_ngram, __doc__)

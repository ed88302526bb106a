#!/usr/bin/env python3
"""A word n-gram model in ARPA format, from training text only.

    train_ngram.py --text data/lang/transcript_words.txt --output data/lm/3-gram.arpa
    train_ngram.py --supervisions data/manifests/aishell_supervisions_train.jsonl.gz \\
        --unit char --output data/lm/3-gram.arpa

Smoothing is interpolated modified Kneser-Ney; nothing is pruned. The text is read once and kept
as numbers.
"""

import argparse
import logging
import re
from itertools import chain
from pathlib import Path
from typing import Iterator, List

from icefall_attn.data.manifests import read_manifest
from icefall_attn.errors import UserError, run_main
from icefall_attn.ngram import count_ngrams, kneser_ney, write_arpa


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--supervisions",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="manifests of the training set",
    )
    source.add_argument(
        "--text",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="texts, a sentence on each line",
    )
    parser.add_argument(
        "--order", type=int, default=3, metavar="N", help="longest n-grams (default: 3)"
    )
    parser.add_argument(
        "--unit",
        choices=["word", "char"],
        default="word",
        help="what white space separates, or characters (Chinese)",
    )
    parser.add_argument(
        "--output", type=Path, required=True, metavar="FILE", help="the ARPA file"
    )
    args = parser.parse_args()
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)

    if args.order < 1:
        raise UserError(f"--order must be at least 1, not {args.order}")
    files = args.supervisions or args.text
    # The name is all that tells; a dev or test file here would spoil every result.
    for path in files:
        if re.search(r"(^|[_-])(dev|test|valid|eval)([_.-]|$)", path.name):
            raise UserError(
                f"{path} is no training set; n-grams come from training text only"
            )
    read = manifest_texts if args.supervisions else file_texts
    split = str.split if args.unit == "word" else characters
    texts = chain.from_iterable(map(read, files))
    words, orders = count_ngrams(map(split, texts), args.order)
    write_arpa(args.output, words, orders, kneser_ney(orders))
    counts = ", ".join(str(len(grams.word)) for grams in orders)
    logging.info("%s: n-grams of orders 1 to %d: %s", args.output, args.order, counts)


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
    run_main(main)

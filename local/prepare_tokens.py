#!/usr/bin/env python3
"""The inventory of tokens, from training text only.

    prepare_tokens.py --supervisions data/manifests/an4_supervisions_train.jsonl.gz \\
        --kind char --lang-dir data/lang

writes `tokens.txt` (and `bpe.model` with `--kind bpe --vocab-size N`) and `transcript_words.txt`,
the text they were made from.
"""

import argparse
import logging
import re
from pathlib import Path
from typing import IO, Iterator, List

from icefall_attn.data.lexicon import read_lexicon
from icefall_attn.data.manifests import read_items
from icefall_attn.data.sample import RandomSample
from icefall_attn.data.tokenizer import Tokenizer, train_bpe, train_char
from icefall_attn.errors import UserError, run_main
from icefall_attn.files import atomic_write


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--supervisions",
        nargs="+",
        type=Path,
        required=True,
        metavar="FILE",
        help="of the training set",
    )
    parser.add_argument(
        "--kind",
        choices=["char", "bpe", "lexicon"],
        required=True,
        help="characters, sentencepiece's pieces of words, or the phones of a dictionary",
    )
    parser.add_argument(
        "--vocab-size",
        type=int,
        metavar="N",
        help="bpe: how many, <blk>, <sos/eos> and <unk> included",
    )
    parser.add_argument(
        "--bpe-texts",
        type=int,
        default=100_000,
        metavar="N",
        help="bpe: of more texts, a random choice of N makes the pieces (default: 100000, for"
        " which 1 GB of memory is enough); no character is missed",
    )
    parser.add_argument(
        "--lexicon",
        type=Path,
        metavar="FILE",
        help="lexicon: a pronouncing dictionary in CMU's format",
    )
    parser.add_argument(
        "--drop-spaces",
        action="store_true",
        help="char: no token between words (Chinese)",
    )
    parser.add_argument(
        "--lang-dir", type=Path, required=True, metavar="DIR", help="where they go"
    )
    args = parser.parse_args()
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)

    # The name is all that tells; a dev or test file here would spoil every result.
    for path in args.supervisions:
        if re.search(r"(^|[_-])(dev|test|valid|eval)([_.-]|$)", path.name):
            raise UserError(
                f"--supervisions {path} is no training set; tokens come from training text only"
            )
    if args.kind == "bpe" and (args.vocab_size is None or args.vocab_size < 4):
        raise UserError(f"--vocab-size is {args.vocab_size}; give at least 4")
    if args.kind == "lexicon" and args.lexicon is None:
        raise UserError("--kind lexicon needs --lexicon FILE")
    if args.bpe_texts < 1:
        raise UserError(f"--bpe-texts is {args.bpe_texts}; give at least 1")

    with atomic_write(args.lang_dir / "transcript_words.txt") as file:
        tokenizer = make_tokenizer(args, copy_texts(args.supervisions, file))
    if args.kind != "bpe":
        # A bpe.model of an earlier run would be taken for this inventory's.
        (args.lang_dir / "bpe.model").unlink(missing_ok=True)
    tokenizer.save(args.lang_dir)
    logging.info("%s: %d tokens", args.lang_dir, tokenizer.vocab_size)


def copy_texts(paths: List[Path], file: IO[str]) -> Iterator[str]:
    """The texts one by one, each written to ``file`` on its way."""
    for path in paths:
        for supervision in read_items(path):
            text = supervision.text or ""
            file.write(f"{text}\n")
            yield text


def make_tokenizer(args: argparse.Namespace, texts: Iterator[str]) -> Tokenizer:
    """The tokenizer of a training text, which is read once."""
    if args.kind == "lexicon":
        return read_lexicon(args.lexicon, texts)
    if args.kind == "char":
        return train_char(texts, keep_spaces=not args.drop_spaces)
    chosen = choose_texts(texts, args.bpe_texts)
    logging.info("pieces are trained on %d texts", len(chosen))
    return train_bpe(chosen, args.vocab_size)


def choose_texts(texts: Iterator[str], count: int) -> List[str]:
    """All texts, or a random choice and the first text with each character."""
    sample: RandomSample[str] = RandomSample(count)
    characters, firsts = set(), []
    for text in texts:
        sample.add(text)
        if not characters.issuperset(text):
            characters.update(text)
            firsts.append(text)
    return sample.items if sample.seen <= count else sample.items + firsts


if __name__ == "__main__":
    run_main(main)

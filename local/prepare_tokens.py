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

from icefall_attn.data.lexicon import read_lexicon
from icefall_attn.data.manifests import read_manifest
from icefall_attn.data.tokenizer import train_bpe, train_char
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
    texts = [s.text or "" for path in args.supervisions for s in read_manifest(path)]
    if args.kind == "bpe":
        if args.vocab_size is None or args.vocab_size < 4:
            raise UserError(f"--vocab-size is {args.vocab_size}; give at least 4")
        tokenizer = train_bpe(texts, args.vocab_size)
    elif args.kind == "lexicon":
        if args.lexicon is None:
            raise UserError("--kind lexicon needs --lexicon FILE")
        tokenizer = read_lexicon(args.lexicon, texts)
    else:
        # A bpe.model of an earlier run would be taken for this inventory's.
        (args.lang_dir / "bpe.model").unlink(missing_ok=True)
        tokenizer = train_char(texts, keep_spaces=not args.drop_spaces)
    with atomic_write(args.lang_dir / "transcript_words.txt") as file:
        file.writelines(f"{text}\n" for text in texts)
    tokenizer.save(args.lang_dir)
    logging.info(
        "%s: %d tokens from %d texts", args.lang_dir, tokenizer.vocab_size, len(texts)
    )


if __name__ == "__main__":
    run_main(main)

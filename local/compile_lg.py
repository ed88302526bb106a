#!/usr/bin/env python3
"""The graph of words (LG) for k2's searches, from an n-gram model and the tokens.

    compile_lg.py --arpa data/lm/3-gram.arpa --lang-dir data/lang

writes `LG.pt`, plain tensors, and `words.txt` into the lang directory. The model may be gzipped,
as LibriSpeech's `3-gram.pruned.1e-7.arpa.gz` is. Words that the tokens cannot spell are left out.
"""

import argparse
import logging
from pathlib import Path

from icefall_attn.data.tokenizer import load_tokenizer
from icefall_attn.decoding.lexicon_graph import compile_word_graph
from icefall_attn.errors import run_main


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--arpa", type=Path, required=True, metavar="FILE", help="n-grams of words"
    )
    parser.add_argument(
        "--lang-dir", type=Path, required=True, metavar="DIR", help="has the tokens"
    )
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="default: LG.pt in --lang-dir"
    )
    args = parser.parse_args()
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)

    graph = compile_word_graph(args.arpa, load_tokenizer(args.lang_dir))
    output = args.output or args.lang_dir / "LG.pt"
    graph.save(output)
    logging.info("%s: %d words", output, len(graph.words) - 1)


if __name__ == "__main__":
    run_main(main)

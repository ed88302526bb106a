#!/usr/bin/env python3
"""The graph of words (LG) for k2's searches, from an n-gram model and the tokens.

    compile_lg.py --arpa data/lm/3-gram.arpa --lang-dir data/lang

writes `LG.pt`, plain tensors, and `words.txt` into the lang directory. The model may be gzipped,
as LibriSpeech's `3-gram.pruned.1e-7.arpa.gz` is. Words that the tokens cannot spell are left out.
"""

import logging
from pathlib import Path
from typing import Optional

from icefall_attn.data.tokenizer import load_tokenizer
from icefall_attn.decoding.lexicon_graph import compile_word_graph
from icefall_attn.program import run_program


def compile_lg(arpa: Path, lang_dir: Path, output: Optional[Path] = None) -> None:
    """Compiles the graph and writes it.

    Args:
      arpa: the n-grams of words.
      lang_dir: has the tokens, and gets the graph.
      output: the graph, if it shall not be LG.pt in --lang-dir.
    """
    graph = compile_word_graph(arpa, load_tokenizer(lang_dir))
    output = output or lang_dir / "LG.pt"
    graph.save(output)
    logging.info("%s: %d words", output, len(graph.words) - 1)


if __name__ == "__main__":
    run_program(compile_lg, __doc__)

#!/usr/bin/env python3
"""The inventory of tokens, from training text only.

    prepare_tokens.py --supervisions data/manifests/an4_supervisions_train.jsonl.gz \\
        --kind char --lang-dir data/lang

writes `tokens.txt` (and `bpe.model` with `--kind bpe --vocab-size N`) and `transcript_words.txt`,
the text they were made from.
"""

import logging
from pathlib import Path
from typing import IO, Iterator, List, Literal, Optional

from icefall_attn.data.lexicon import read_lexicon
from icefall_attn.data.manifests import read_items, refuse_held_out
from icefall_attn.data.sample import RandomSample
from icefall_attn.data.tokenizer import Tokenizer, train_bpe, train_char
from icefall_attn.errors import UserError
from icefall_attn.files import atomic_write
from icefall_attn.program import run_program


def prepare_tokens(
    supervisions: List[Path],
    kind: Literal["char", "bpe", "lexicon"],
    lang_dir: Path,
    vocab_size: Optional[int] = None,
    bpe_texts: int = 100_000,
    lexicon: Optional[Path] = None,
    drop_spaces: bool = False,
) -> None:
    """Makes the inventory and writes it.

    Args:
      supervisions: manifests of the training set.
      kind: characters, sentencepiece's pieces of words, or the phones of a dictionary.
      lang_dir: where they go.
      vocab_size: bpe: how many, <blk>, <sos/eos> and <unk> included.
      bpe_texts: bpe: of more texts, a random choice of N makes the pieces (1 GB of memory is enough
        for 100000); no character is missed.
      lexicon: lexicon: a pronouncing dictionary in CMU's format.
      drop_spaces: char: no token between words (Chinese).

    Raises:
      UserError: no training text, or options that do not fit the kind.
    """
    refuse_held_out(supervisions, "tokens")
    if kind == "bpe" and (vocab_size is None or vocab_size < 4):
        raise UserError(f"--vocab-size is {vocab_size}; give at least 4")
    if kind == "lexicon" and lexicon is None:
        raise UserError("--kind lexicon needs --lexicon PATH")
    if bpe_texts < 1:
        raise UserError(f"--bpe-texts is {bpe_texts}; give at least 1")

    with atomic_write(lang_dir / "transcript_words.txt") as file:
        texts = copy_texts(supervisions, file)
        if kind == "lexicon":
            tokenizer = read_lexicon(lexicon, texts)
        elif kind == "char":
            tokenizer = train_char(texts, keep_spaces=not drop_spaces)
        else:
            tokenizer = train_pieces(texts, vocab_size, bpe_texts)
    if kind != "bpe":
        # A bpe.model of an earlier run would be taken for this inventory's.
        (lang_dir / "bpe.model").unlink(missing_ok=True)
    tokenizer.save(lang_dir)
    logging.info("%s: %d tokens", lang_dir, tokenizer.vocab_size)


def copy_texts(paths: List[Path], file: IO[str]) -> Iterator[str]:
    """The texts one by one, each written to ``file`` on its way."""
    for path in paths:
        for supervision in read_items(path):
            text = supervision.text or ""
            file.write(f"{text}\n")
            yield text


def train_pieces(texts: Iterator[str], vocab_size: int, bpe_texts: int) -> Tokenizer:
    """Pieces of words from at most about ``bpe_texts`` of the texts."""
    chosen = choose_texts(texts, bpe_texts)
    logging.info("pieces are trained on %d texts", len(chosen))
    return train_bpe(chosen, vocab_size)


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
    run_program(prepare_tokens, __doc__)

"""Words as phones: labels for an auxiliary loss, from a pronouncing dictionary."""

import re
from pathlib import Path
from typing import Dict, Iterable, List, Sequence, Union

from icefall_attn.data.tokenizer import (
    BLANK_ID,
    SOS_EOS_ID,
    SPECIAL_TOKENS,
    UNK_ID,
    Tokenizer,
)
from icefall_attn.errors import UserError
from icefall_attn.files import atomic_write


class LexiconTokenizer(Tokenizer):
    """Every word becomes its phones; a word that the lexicon lacks becomes `UNK_ID`.

    `decode` gives phones, since several words may share them: it is for looking, not for results.
    """

    def __init__(self, lexicon: Dict[str, List[str]]):
        if not lexicon:
            raise UserError("the lexicon has no word of the training text")
        phones = sorted({phone for word in lexicon.values() for phone in word})
        self.lexicon = lexicon
        self.tokens = [*SPECIAL_TOKENS, *phones]
        self._ids = {token: index for index, token in enumerate(self.tokens)}

    def encode(self, text: str) -> List[int]:
        ids: List[int] = []
        for word in text.split():
            phones = self.lexicon.get(word)
            ids += [UNK_ID] if phones is None else [self._ids[p] for p in phones]
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(self.tokens[i] for i in ids if i not in (BLANK_ID, SOS_EOS_ID))

    def save(self, lang_dir: Union[str, Path]) -> None:
        with atomic_write(Path(lang_dir) / "lexicon.txt") as file:
            for word, phones in sorted(self.lexicon.items()):
                print(word, *phones, file=file)
        super().save(lang_dir)


def read_lexicon(path: Union[str, Path], texts: Iterable[str]) -> LexiconTokenizer:
    """Reads a dictionary in CMU's format ("WORD PHONE PHONE ...", variants as "WORD(2) ...").

    Only the words of ``texts`` are taken, each with its first pronunciation.

    Raises:
      UserError: if the file is missing or a line has no phones.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path} is missing; it should be a pronouncing dictionary")
    wanted = {word for text in texts for word in text.split()}
    lexicon: Dict[str, List[str]] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith(";;;"):
            continue
        name, *phones = line.split()
        if not phones:
            raise UserError(f"{path}, line {number}: {name!r} has no phones")
        word = re.sub(r"\(\d+\)$", "", name)
        if word in wanted:
            lexicon.setdefault(word, phones)
    return LexiconTokenizer(lexicon)


def load_lexicon(lang_dir: Union[str, Path]) -> LexiconTokenizer:
    """Reads a directory that `LexiconTokenizer.save` wrote."""
    path = Path(lang_dir) / "lexicon.txt"
    if not path.is_file():
        raise UserError(f"{path} is missing; prepare the tokens first")
    lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    return LexiconTokenizer({word: phones for word, *phones in lines})

"""Texts to token ids and back: sentencepiece and characters behind one interface.

The first three ids are the same everywhere: 0 `<blk>`, 1 `<sos/eos>`, 2 `<unk>`. A directory of
tokens holds icefall's `tokens.txt` ("piece id" on each line) and, for sentencepiece, `bpe.model`.
"""

import io
import re
from pathlib import Path
from typing import Iterable, List, Sequence, Union

import sentencepiece as spm

from icefall_attn.errors import UserError
from icefall_attn.files import atomic_write

__all__ = [
    "BLANK_ID",
    "SOS_EOS_ID",
    "UNK_ID",
    "Tokenizer",
    "CharTokenizer",
    "BpeTokenizer",
    "load_tokenizer",
    "train_char",
    "train_bpe",
]

BLANK_ID = 0
SOS_EOS_ID = 1
UNK_ID = 2
SPECIAL_TOKENS = ("<blk>", "<sos/eos>", "<unk>")
WORD_BOUNDARY = "▁"


class Tokenizer:
    """What every tokenizer can do. ``tokens[i]`` is the piece with id ``i``.

    ``unit`` is what errors in its texts are counted in: ``char`` if they know no words.
    """

    tokens: List[str]
    unit = "word"

    @property
    def vocab_size(self) -> int:
        """The number of tokens, blank included (V)."""
        return len(self.tokens)

    def encode(self, text: str) -> List[int]:
        """Ids of a text, without blank or ends of sentence; `<unk>` in it is one id."""
        raise NotImplementedError

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; blank and `<sos/eos>` leave nothing, `UNK_ID` reads `<unk>`."""
        raise NotImplementedError

    def save(self, lang_dir: Union[str, Path]) -> None:
        """Writes what `load_tokenizer` reads."""
        lines = [f"{token} {index}\n" for index, token in enumerate(self.tokens)]
        with atomic_write(Path(lang_dir) / "tokens.txt") as file:
            file.writelines(lines)


class CharTokenizer(Tokenizer):
    """One token per character.

    If ``▁`` is among the tokens it stands between words, otherwise white space is left out (as for
    Chinese). Characters that are not tokens give `UNK_ID`.
    """

    def __init__(self, tokens: Sequence[str]):
        _check_special_tokens(tokens)
        self.tokens = list(tokens)
        self._ids = {token: index for index, token in enumerate(self.tokens)}
        self._boundary = self._ids.get(WORD_BOUNDARY)
        self.unit = "char" if self._boundary is None else "word"

    def encode(self, text: str) -> List[int]:
        ids: List[int] = []
        for word in text.split():
            if ids and self._boundary is not None:
                ids.append(self._boundary)
            for piece in re.split("(<unk>)", word):
                if piece == "<unk>":
                    ids.append(UNK_ID)
                else:
                    ids.extend(map(self._character_id, piece))
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        pieces = (self.tokens[i] for i in ids if i not in (BLANK_ID, SOS_EOS_ID))
        text = "".join(pieces)
        if self._boundary is None:
            return text
        return " ".join(text.replace(WORD_BOUNDARY, " ").split())

    def _character_id(self, character: str) -> int:
        # A "▁" that somebody wrote is no boundary between words.
        if character == WORD_BOUNDARY:
            return UNK_ID
        return self._ids.get(character, UNK_ID)


class BpeTokenizer(Tokenizer):
    """Sentencepiece's pieces; ``model`` is the content of a `bpe.model` file."""

    def __init__(self, model: bytes):
        self._model = model
        self._processor = spm.SentencePieceProcessor(model_proto=model)
        self.tokens = [
            self._processor.id_to_piece(i)
            for i in range(self._processor.get_piece_size())
        ]
        _check_special_tokens(self.tokens)

    def encode(self, text: str) -> List[int]:
        # Sentencepiece would spell `<unk>` out in pieces; here it is one id.
        ids: List[int] = []
        for part in re.split("(<unk>)", text):
            if part == "<unk>":
                ids.append(UNK_ID)
            elif part.strip():
                ids.extend(self._processor.encode(part.strip()))
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        # The training text holds every character of the model (coverage 1), so that `<unk>` is
        # learnt as a word of its own, never as a part of one.
        pieces = (
            f"{WORD_BOUNDARY}<unk>{WORD_BOUNDARY}" if i == UNK_ID else self.tokens[i]
            for i in ids
            if i not in (BLANK_ID, SOS_EOS_ID)
        )
        return " ".join("".join(pieces).replace(WORD_BOUNDARY, " ").split())

    def save(self, lang_dir: Union[str, Path]) -> None:
        with atomic_write(Path(lang_dir) / "bpe.model", "wb") as file:
            file.write(self._model)
        super().save(lang_dir)


def load_tokenizer(lang_dir: Union[str, Path]) -> Tokenizer:
    """Reads a directory of tokens.

    Raises:
      UserError: if files are missing, damaged or at odds with each other.
    """
    lang_dir = Path(lang_dir)
    tokens = _read_tokens(lang_dir / "tokens.txt")
    model = lang_dir / "bpe.model"
    if not model.is_file():
        return CharTokenizer(tokens)
    try:
        tokenizer = BpeTokenizer(model.read_bytes())
    except RuntimeError:
        raise UserError(f"{model} is no sentencepiece model; prepare the tokens again")
    if tokenizer.tokens != tokens:
        raise UserError(
            f"{lang_dir}/tokens.txt does not list the pieces of {model}; prepare the tokens again"
        )
    return tokenizer


def train_char(texts: Iterable[str], keep_spaces: bool) -> CharTokenizer:
    """The characters of a training text, sorted; ``keep_spaces`` adds ``▁`` between words."""
    characters = set()
    for text in texts:
        characters.update(*text.replace("<unk>", " ").split())
    characters.discard(WORD_BOUNDARY)
    if not characters:
        raise UserError("the training text is empty: there are no characters to list")
    boundary = [WORD_BOUNDARY] if keep_spaces else []
    return CharTokenizer([*SPECIAL_TOKENS, *boundary, *sorted(characters)])


def train_bpe(texts: Iterable[str], vocab_size: int) -> BpeTokenizer:
    """Trains a unigram sentencepiece model of ``vocab_size`` pieces on a training text."""
    sentences = (" ".join(text.replace("<unk>", " ").split()) for text in texts)
    sentences = [sentence for sentence in sentences if sentence]
    if not sentences:
        raise UserError(
            "the training text is empty: there is nothing to train pieces on"
        )
    model = io.BytesIO()
    try:
        spm.SentencePieceTrainer.train(
            sentence_iterator=iter(sentences),
            model_writer=model,
            vocab_size=vocab_size,
            model_type="unigram",
            character_coverage=1.0,
            # Room for the longest line: sentencepiece silently leaves longer ones out.
            max_sentence_length=max(4192, *(len(s.encode()) for s in sentences)),
            user_defined_symbols=["<blk>", "<sos/eos>"],
            unk_id=UNK_ID,
            unk_piece="<unk>",
            bos_id=-1,
            # Its threads can stall for seconds on busy processors; little text needs none.
            num_threads=1 if len(sentences) < 20_000 else 16,
            eos_id=-1,
            minloglevel=2,
        )
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1].split("] ")[-1].rstrip(".")
        raise UserError(f"sentencepiece refuses vocab_size={vocab_size}: {reason}")
    return BpeTokenizer(model.getvalue())


def _read_tokens(path: Path) -> List[str]:
    if not path.is_file():
        raise UserError(f"{path} is missing; prepare the tokens first")
    tokens: List[str] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        token, _, index = line.rpartition(" ")
        if not token or index != str(len(tokens)):
            raise UserError(
                f"{path}, line {number}: expected a token and the id {len(tokens)}, found {line!r}"
            )
        tokens.append(token)
    return tokens


def _check_special_tokens(tokens: Sequence[str]) -> None:
    if tuple(tokens[:3]) != SPECIAL_TOKENS:
        raise UserError(
            f"the first three tokens must be {' '.join(SPECIAL_TOKENS)},"
            f" found {' '.join(tokens[:3])!r}"
        )
    if len(set(tokens)) != len(tokens):
        double = next(t for i, t in enumerate(tokens) if t in tokens[:i])
        raise UserError(f"the token {double!r} is listed twice")

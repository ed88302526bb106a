"""LG: the graph of tokens whose paths are sentences, weighted by an n-gram model of words."""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import List, Sequence

import torch
from torch import Tensor

from icefall_attn.errors import UserError
from icefall_attn.files import atomic_write


@dataclass
class WordGraph:
    """An epsilon-free acceptor of tokens that says which words its paths mean.

    Args:
      arcs: (A, 4) int32 as in k2: source, destination, token (-1: to the final state, the
        last one), and the bits of a float32, the natural log of the n-gram's probability.
      word_splits: (A + 1,) int32; arc a says ``word_ids[word_splits[a]:word_splits[a + 1]]``.
      word_ids: (W,) int32.
      words: by id; 0 is no word.
      tokens: the inventory that the graph was made for, by id.
    """

    arcs: Tensor
    word_splits: Tensor
    word_ids: Tensor
    words: List[str]
    tokens: List[str]

    def save(self, path: Path) -> None:
        """Writes tensors and strings; words also as ``words.txt`` ("word id") beside it."""
        with atomic_write(path.with_name("words.txt")) as file:
            file.writelines(f"{word} {id}\n" for id, word in enumerate(self.words))
        buffer = io.BytesIO()
        torch.save(vars(self), buffer)
        with atomic_write(path, "wb") as file:
            file.write(buffer.getbuffer())

    def check_tokens(self, tokens: Sequence[str], path: str) -> None:
        """Raises `UserError` if the graph in ``path`` was made for other tokens."""
        if self.tokens != list(tokens):
            raise UserError(
                f"{path} was made for {len(self.tokens)} tokens that are not the model's "
                f"{len(tokens)}; compile it again with the model's lang directory"
            )


def load_word_graph(path: str) -> WordGraph:
    """Reads what `WordGraph.save` wrote.

    Raises:
      UserError: the file is missing or no such graph.
    """
    if not Path(path).is_file():
        raise UserError(f"there is no graph {path}; local/compile_lg.py makes one")
    try:
        stored = torch.load(path, map_location="cpu", weights_only=True)
        return WordGraph(**stored)
    except Exception as error:  # zip, pickle and unpickling errors of many kinds
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(
            f"{path} is damaged or not of local/compile_lg.py: {reason}"
        ) from None

"""ARPA files, plain or gzipped: logarithms to base 10."""

import gzip
from pathlib import Path
from typing import IO, Iterator, List, Sequence, Union

import numpy as np

from icefall_attn.errors import UserError
from icefall_attn.files import atomic_write
from icefall_attn.ngram.counts import BOS, EOS_ID, NGrams
from icefall_attn.ngram.kneser_ney import Estimate

#: Log-probability of what is never predicted, as everybody writes it.
_NEVER = -99.0


def write_arpa(
    path: Union[str, Path],
    words: Sequence[str],
    orders: Sequence[NGrams],
    estimates: Sequence[Estimate],
) -> None:
    """Writes a model; the file appears when it is whole."""
    with atomic_write(path) as file:
        print("\n\\data\\", file=file)
        for n, grams in enumerate(orders, 1):
            print(f"ngram {n}={len(grams.word)}", file=file)
        names: List[str] = [""]
        for n, (grams, estimate) in enumerate(zip(orders, estimates), 1):
            print(f"\n\\{n}-grams:", file=file)
            lasts = [words[word] for word in grams.word]
            names = [
                f"{names[prefix]} {last}" if n > 1 else last
                for prefix, last in zip(grams.prefix, lasts)
            ]
            file.writelines(_lines(names, grams, estimate, n == len(orders)))
        print("\n\\end\\", file=file)


def _lines(
    names: List[str], grams: NGrams, estimate: Estimate, highest: bool
) -> Iterator[str]:
    probability = estimate.probability
    seen = probability > 0
    logs = np.log10(probability, out=np.full(len(seen), _NEVER), where=seen)
    backoffs = np.log10(estimate.backoff)
    history = (grams.word != EOS_ID) & (not highest)
    for name, log, backoff, follows in zip(names, logs, backoffs, history):
        yield (
            f"{log:.6f}\t{name}\t{backoff:.6f}\n" if follows else f"{log:.6f}\t{name}\n"
        )


def open_arpa(path: Path) -> IO[bytes]:
    """Opens a file, gzipped if its first bytes say so.

    Raises:
      UserError: the file is missing.
    """
    if not path.is_file():
        raise UserError(
            f"{path} is missing; it should be an n-gram model in ARPA format"
        )
    file = open(path, "rb")
    zipped = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    return gzip.open(file) if zipped else file


def read_words(file: IO[bytes], path: Path) -> List[str]:
    """The words of an ARPA file's unigrams in its order, without those in angle brackets.

    Args:
      file: from `open_arpa`.
      path: for messages.

    Raises:
      UserError: the file has no unigrams or is damaged.
    """
    words: List[str] = []
    inside = False
    try:
        for raw in file:
            line = raw.decode("utf-8").strip()
            if line.startswith("\\"):
                if inside:
                    break
                inside = line == "\\1-grams:"
            elif inside and line:
                words.append(line.split()[1])
    except (IndexError, EOFError, OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is damaged or not in ARPA format: {error}") from None
    if BOS not in words:
        raise UserError(f"{path} is not in ARPA format: it has no unigram '{BOS}'")
    return [word for word in words if not (word[0] == "<" and word[-1] == ">")]

"""An ARPA model as dictionaries: slow and obvious."""

import gzip
from pathlib import Path
from typing import Dict, List, Tuple


class ArpaModel:
    """Reads a file and answers by the definition of back-off; log10 throughout."""

    def __init__(self, path: Path) -> None:
        data = path.read_bytes()
        data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        self.logs: Dict[Tuple[str, ...], float] = {}
        self.backoffs: Dict[Tuple[str, ...], float] = {}
        self.header: List[int] = []
        order = 0
        for line in data.decode("utf-8").splitlines():
            if line.startswith("ngram "):
                self.header.append(int(line.split("=")[1]))
            elif line.endswith("-grams:"):
                order = int(line[1:].split("-")[0])
            elif order and line and not line.startswith("\\"):
                log, *rest = line.split()
                self.logs[tuple(rest[:order])] = float(log)
                if len(rest) > order:
                    self.backoffs[tuple(rest[:order])] = float(rest[order])
        self.order = order

    def log10(self, history: Tuple[str, ...], word: str) -> float:
        """Of ``word`` after ``history``."""
        history = history[max(0, len(history) - self.order + 1) :]
        if history + (word,) not in self.logs:
            return self.backoffs.get(history, 0.0) + self.log10(history[1:], word)
        return self.logs[history + (word,)]

    def sentence(self, words: Tuple[str, ...]) -> float:
        """Log10 of a whole sentence, its end included."""
        history, total = ("<s>",), 0.0
        for word in (*words, "</s>"):
            total += self.log10(history, word)
            history += (word,)
        return total

"""Functions as programs."""

from pathlib import Path
from typing import List, Literal, Optional

import pytest

from icefall_attn.program import arguments


def speak(
    out_dir: Path,
    parts: List[str],
    nj: int = 2,
    speeds: List[float] = (0.9, 1.1),
    kind: Literal["char", "bpe"] = "char",
    size: Optional[int] = None,
    overwrite: bool = False,
) -> None:
    """Speaks.

    Args:
      out_dir: where it goes.
      parts: such as train,
        or 100 % of it.
      nj: processes.
      speeds: of the copies.
      kind: of tokens.
      size: of the vocabulary.
      overwrite: keep nothing.
    """


def test_every_kind_of_option():
    words = "--out-dir a --parts x y --nj 3 --speeds --kind bpe --size 5 --overwrite"
    assert arguments(speak, None, words.split()) == {
        "out_dir": Path("a"),
        "parts": ["x", "y"],
        "nj": 3,
        "speeds": [],
        "kind": "bpe",
        "size": 5,
        "overwrite": True,
    }
    assert arguments(speak, None, "--out-dir a --parts x".split()) == {
        "out_dir": Path("a"),
        "parts": ["x"],
        "nj": 2,
        "speeds": (0.9, 1.1),
        "kind": "char",
        "size": None,
        "overwrite": False,
    }


@pytest.mark.parametrize(
    "words, complaint",
    [
        ("--parts x", "required: --out-dir"),
        ("--out-dir a --parts", "--parts: expected at least one"),
        ("--out-dir a --parts x --nj two", "--nj: invalid int value: 'two'"),
        ("--out-dir a --parts x --kind word", "invalid choice: 'word'"),
        ("--out-dir a --parts x --out b", "--out"),
    ],
)
def test_mistakes_are_told(words, complaint, capsys):
    with pytest.raises(SystemExit) as stopped:
        arguments(speak, None, words.split())
    assert stopped.value.code == 2 and complaint in capsys.readouterr().err


def test_help_is_the_docstrings(capsys):
    with pytest.raises(SystemExit):
        arguments(speak, "Says something.", ["--help"])
    shown = " ".join(capsys.readouterr().out.split())
    for words in (
        "Says something.",
        "such as train, or 100 % of it.",
        "(default: 0.9 1.1)",
        "{char,bpe}",
    ):
        assert words in shown

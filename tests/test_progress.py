"""Progress bars are shown where a person watches, and nowhere else."""

import re
from pathlib import Path

import pytest

from icefall_attn.progress import progress_bar

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("value, shown", [(None, False), ("0", False), ("1", True)])
def test_through_a_pipe(monkeypatch, capsys, value, shown):
    monkeypatch.delenv("ICEFALL_ATTN_PROGRESS", raising=False)
    if value is not None:
        monkeypatch.setenv("ICEFALL_ATTN_PROGRESS", value)
    assert list(progress_bar(range(3), desc="counting")) == [0, 1, 2]
    captured = capsys.readouterr()
    assert captured.out == ""
    assert ("counting: 100%" in captured.err) == shown
    assert shown or captured.err == ""


def test_on_a_terminal(monkeypatch, capsys):
    monkeypatch.delenv("ICEFALL_ATTN_PROGRESS", raising=False)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with progress_bar(total=3, desc="steps") as bar:
        bar.update(3)
    assert "steps: 100%" in capsys.readouterr().err


def test_no_bar_goes_by_another_rule():
    files = [
        p
        for part in ("icefall_attn", "local", "egs")
        for p in (ROOT / part).rglob("*.py")
    ]
    users = {
        p.name for p in files if re.search(r"^(from|import) tqdm", p.read_text(), re.M)
    }
    assert users == {"progress.py"}

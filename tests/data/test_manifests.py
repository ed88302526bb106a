"""Manifests of any size: written whole and only when they change, shuffled in pieces."""

import gzip

import pytest

from icefall_attn.data.manifests import (
    read_items,
    read_lines,
    shuffled_lines,
    write_lines,
)
from icefall_attn.errors import UserError

LINES = [b'{"id": %d}\n' % number for number in range(1000)]


def test_lines_come_back_and_equal_ones_are_not_written_again(tmp_path):
    path = tmp_path / "new/a.jsonl.gz"
    assert write_lines(iter(LINES), path)
    assert list(read_lines(path)) == LINES
    before = path.stat()
    assert not write_lines(LINES, path)
    assert path.stat().st_ino == before.st_ino
    assert write_lines(LINES[:-1], path)
    assert list(read_lines(path)) == LINES[:-1]


def test_a_failure_leaves_the_file_as_it_was(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    write_lines(LINES, path)

    def failing():
        yield b"half\n"
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError):
        write_lines(failing(), path)
    assert list(read_lines(path)) == LINES
    assert [p.name for p in tmp_path.iterdir()] == ["a.jsonl.gz"]


@pytest.mark.parametrize("at_once", [10_000, 1000, 90])
def test_shuffled_lines_are_the_same_lines(tmp_path, at_once):
    shuffled = list(shuffled_lines(LINES, len(LINES), tmp_path, at_once))
    assert sorted(shuffled) == sorted(LINES) and shuffled != LINES
    assert shuffled == list(shuffled_lines(LINES, len(LINES), tmp_path, at_once))
    assert not list(tmp_path.iterdir())
    # Nothing of the order is left: ranks correlate by chance, 0.03 standard deviation.
    places = [int(line[7:-2]) for line in shuffled]
    mean = sum(places) / 1000
    covariance = sum((i - mean) * (p - mean) for i, p in enumerate(places))
    assert abs(covariance / sum((p - mean) ** 2 for p in places)) < 0.15


def test_damaged_files_are_named(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    with pytest.raises(UserError, match="a.jsonl.gz is missing"):
        list(read_lines(path))
    write_lines(LINES, path)
    whole = path.read_bytes()
    flipped = bytes([*whole[:800], *(255 - byte for byte in whole[800:])])
    for content in (whole[:-20], flipped, b"text"):
        path.write_bytes(content)
        with pytest.raises(UserError, match="a.jsonl.gz cannot be read as a manifest"):
            list(read_lines(path))
    spoken = b'{"id": "a", "recording_id": "a", "start": 0, "duration": 1}\n'
    path.write_bytes(gzip.compress(spoken + b'{"id":'))
    with pytest.raises(UserError, match="a.jsonl.gz is damaged after 1 items"):
        list(read_items(path))

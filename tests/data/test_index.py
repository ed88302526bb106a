"""Cuts by their number: as lhotse reads them, whatever the file."""

import gzip
import shutil

import numpy as np
import pytest
from lhotse import CutSet, load_manifest

from icefall_attn.data import index
from icefall_attn.data.index import IndexedCuts, Joined
from icefall_attn.data.manifests import write_manifest
from icefall_attn.errors import UserError


@pytest.fixture
def path(corpus_dir, tmp_path):
    return shutil.copy(corpus_dir / "train.jsonl.gz", tmp_path / "cuts.jsonl.gz")


@pytest.fixture
def scans(monkeypatch):
    """Names of the files that were gone through."""
    found = []
    scan = index.scan
    monkeypatch.setattr(
        index, "scan", lambda *args: found.append(args[1].name) or scan(*args)
    )
    return found


def test_any_cut_in_any_order(path):
    cuts = list(load_manifest(path))
    indexed = IndexedCuts(path)
    assert indexed.durations.tolist() == [cut.duration for cut in cuts]
    numbers = np.random.default_rng(0).permutation(len(cuts))
    assert indexed.read(numbers) == [cuts[n] for n in numbers]


def test_plain_files_blank_lines_and_mixtures(path):
    cuts = list(load_manifest(path).subset(first=3))
    cuts.append(cuts[0].append(cuts[1]).with_id("mixed"))
    write_manifest(CutSet.from_cuts(cuts), path)
    plain = path.with_suffix("")
    with gzip.open(path, "rt") as lines:
        plain.write_text("\n" + "\n\n".join(line.strip() for line in lines) + "\n")
    for indexed in (IndexedCuts(path), IndexedCuts(plain)):
        assert indexed.durations.tolist() == [cut.duration for cut in cuts]
        assert [cut.id for cut in indexed.read([3, 0])] == ["mixed", cuts[0].id]
    # Its lines are not copied.
    assert IndexedCuts(plain)._lines == plain


def test_made_once_and_again_when_the_file_changes(path, scans):
    IndexedCuts(path)
    IndexedCuts(path)
    assert scans == ["cuts.jsonl.gz"]
    cuts = list(load_manifest(path))
    write_manifest(CutSet.from_cuts(cuts[:7][::-1]), path)
    assert IndexedCuts(path).read([0]) == [cuts[6]]
    assert len(scans) == 2
    stored = path.parent / ".index/cuts.jsonl.gz.npz"
    stored.write_bytes(stored.read_bytes()[:100])
    assert IndexedCuts(path).read([0]) == [cuts[6]]
    assert len(scans) == 3


def test_in_the_users_cache_where_it_cannot_be_beside(path, scans, monkeypatch):
    (path.parent / ".index").write_text("no directory")
    monkeypatch.setenv("XDG_CACHE_HOME", str(path.parent / "cache"))
    cuts = list(load_manifest(path))
    for _ in range(2):
        assert IndexedCuts(path).read([5]) == [cuts[5]]
    assert len(scans) == 1 and list((path.parent / "cache").rglob("*.npz"))


def test_joined(corpus_dir):
    paths = [corpus_dir / f"{name}.jsonl.gz" for name in ("train", "more")]
    cuts = [cut for path in paths for cut in load_manifest(path)]
    joined = Joined([IndexedCuts(path) for path in paths])
    numbers = np.random.default_rng(0).permutation(len(cuts))
    assert joined.read(numbers) == [cuts[n] for n in numbers]
    assert joined.twice() is None and joined.read([]) == []
    again = Joined([IndexedCuts(path) for path in [*paths, paths[1]]])
    assert again.read([again.twice()])[0].id.startswith("more-")


def test_damage_leaves_nothing(path):
    whole = path.read_bytes()
    for content in (
        whole[: len(whole) // 2],
        b"no gzip",
        gzip.compress(b'{"id": "x"}'),
    ):
        path.write_bytes(content)
        with pytest.raises(UserError, match="cuts.jsonl.gz is damaged after"):
            IndexedCuts(path)
        assert not list((path.parent / ".index").iterdir())


@pytest.mark.parametrize("name", ["cuts.json", "gone.jsonl.gz"])
def test_other_files(tmp_path, name):
    (tmp_path / "cuts.json").write_text("[]")
    with pytest.raises(UserError, match=name):
        IndexedCuts(tmp_path / name)

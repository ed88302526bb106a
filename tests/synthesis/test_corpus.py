"""A corpus is written whole, repeatably, and kept as long as it is the one that is asked for."""

import hashlib
import random
from dataclasses import replace

import pytest

from icefall_attn.errors import UserError
from icefall_attn.synthesis.corpus import BLOCK, synthesize_corpus
from icefall_attn.synthesis.delivery import Utterance, draw_delivery

pytest.importorskip("espeakng_loader")

TEXTS = {"notes/words.txt": "one two\n"}


def make_utterances(count):
    rng = random.Random(0)
    return [
        Utterance(
            id=f"{index:03d}",
            part="dev",
            text="ONE",
            spoken="one",
            voice=rng.choice(["m1", "f2"]),
            accent="en-us",
            tempo=1.0,
            **draw_delivery(rng),
        )
        for index in range(count)
    ]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    directory = tmp_path_factory.mktemp("synthetic") / "corpus"
    synthesize_corpus(directory, make_utterances(BLOCK + 3), nj=1, texts=TEXTS)
    return directory


def checksums(directory):
    return {
        str(path.relative_to(directory)): hashlib.md5(path.read_bytes()).hexdigest()
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_samples_do_not_depend_on_processes(corpus, tmp_path):
    again = tmp_path / "corpus"
    synthesize_corpus(again, make_utterances(BLOCK + 3), nj=2, texts=TEXTS)
    assert checksums(again) == checksums(corpus)
    assert (again / "notes/words.txt").read_text() == "one two\n"
    assert not list(tmp_path.glob(".*"))


def test_a_finished_corpus_is_kept(tmp_path):
    directory = tmp_path / "corpus"
    utterances = make_utterances(2)

    def times(**options):
        synthesize_corpus(directory, utterances, nj=1, **options)
        return {p: p.stat().st_mtime_ns for p in directory.rglob("*.wav")}

    first = times()
    assert times() == first
    (directory / utterances[0].path).unlink()
    second = times()  # made anew, as a whole
    assert second.keys() == first.keys() and not set(first.values()) & set(
        second.values()
    )
    assert not set(times(overwrite=True).values()) & set(second.values())
    utterances[1] = replace(utterances[1], spoken="two")
    before = checksums(directory)
    times()
    changed = {p for p, sum in checksums(directory).items() if sum != before[p]}
    assert changed == {"utterances.jsonl", utterances[1].path}


def test_what_is_no_corpus_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(UserError, match="no synthetic corpus"):
        synthesize_corpus(tmp_path, make_utterances(1), nj=1)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]

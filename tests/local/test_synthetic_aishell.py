"""The synthetic AISHELL: the official layout, and nothing of dev and test in training but their characters."""

import re

import pytest
import soundfile
from lhotse import load_manifest
from prepare_aishell import prepare_aishell
from sentences import GRAMMAR, LEXICON, WORDS
from synthesize_aishell import (
    FIRST_SPEAKER,
    TRANSCRIPT,
    plan_corpus,
    synthesize_aishell,
)

from icefall_attn.synthesis.delivery import PARTS, VOICES

pytest.importorskip("espeakng_loader")

# The recipe's training set is larger.
PLANNED = {"train": 300, "dev": 104, "test": 240}
SPOKEN = {"train": 6, "dev": 2, "test": 3}


@pytest.fixture(scope="module")
def planned():
    utterances = plan_corpus(PLANNED, seed=0)
    return {part: [u for u in utterances if u.part == part] for part in PARTS}


def characters(utterances):
    return set("".join(u.text for u in utterances)) - {" "}


def test_characters_of_dev_and_test_are_in_training(planned):
    counts = {part: len(utterances) for part, utterances in planned.items()}
    assert counts == PLANNED
    train = characters(planned["train"])
    assert characters(planned["dev"]) | characters(planned["test"]) <= train
    assert train == set("".join(WORDS))
    assert 60 <= len(train) <= 120


def test_texts_of_dev_and_test_come_once(planned):
    tests = [u.text for part in ("dev", "test") for u in planned[part]]
    assert len(tests) == len(set(tests))
    assert not set(tests) & {u.text for u in planned["train"]}


def test_texts_are_words_with_single_spaces(planned):
    for part, utterances in planned.items():
        for u in utterances:
            words = u.text.split(" ")
            assert set(words) <= set(WORDS)
            assert all(re.fullmatch("[\u4e00-\u9fff]+", word) for word in words)
            assert u.spoken == u.text and u.accent == "cmn"
            assert part == "train" or len(words) > 1
    # Loose words, so that the training is about sounds: one alone is no sentence.
    alone = [u for u in planned["train"] if " " not in u.text]
    assert len(alone) > 20


def test_voices_and_speakers_are_of_one_part(planned):
    for part, utterances in planned.items():
        assert {u.voice for u in utterances} == set(VOICES[part])
        # A speaker is one voice at one tempo.
        voices = {(u.speaker, u.voice, u.tempo) for u in utterances}
        speakers = {u.speaker for u in utterances}
        assert len(voices) == len(speakers)
        numbers = sorted(int(name[1:]) for name in speakers)
        first = FIRST_SPEAKER[part]
        assert numbers == list(range(first, first + len(numbers)))
        if part != "train":
            assert {u.tempo for u in utterances} == {1.0}
    assert planned["train"][-1].speaker < "S0724" <= planned["dev"][0].speaker


def test_plan_is_repeatable(planned):
    again = plan_corpus(PLANNED, seed=0)
    assert again == sum(planned.values(), [])
    other = plan_corpus(PLANNED, seed=1)
    assert other != again
    # The training set can grow without a change of the others.
    more = plan_corpus({**PLANNED, "train": 400}, seed=0)
    for part in ("dev", "test"):
        assert [u for u in more if u.part == part] == planned[part]


def test_lexicon_has_an_initial_and_a_final_for_each_character():
    assert set(WORDS) == set(re.findall("[\u4e00-\u9fff]+", str(GRAMMAR)))
    for line in LEXICON.splitlines():
        word, *phones = line.split()
        assert len(phones) == 2 * len(word)
        assert all(re.fullmatch("[a-z]+", initial) for initial in phones[::2])
        assert all(re.fullmatch("[a-z]+[1-5]", final) for final in phones[1::2])


def test_layout(tmp_path):
    synthesize_aishell(tmp_path / "dl", **SPOKEN, nj=1)
    corpus = tmp_path / "dl/data_aishell"
    lines = (tmp_path / "dl" / TRANSCRIPT).read_text(encoding="utf-8").splitlines()
    texts = dict(line.split(" ", 1) for line in lines)
    assert len(texts) == len(lines) == sum(SPOKEN.values())
    found = {}
    for path in corpus.rglob("*.wav"):
        part, speaker, name = path.relative_to(corpus / "wav").parts
        assert re.fullmatch(rf"BAC009{speaker}W\d{{4}}\.wav", name)
        info = soundfile.info(path)
        assert (info.samplerate, info.channels, info.subtype) == (16000, 1, "PCM_16")
        assert 0.3 < info.duration < 10
        found.setdefault(part, []).append(path.stem)
    assert {part: len(names) for part, names in found.items()} == SPOKEN
    assert set(texts) == set(sum(found.values(), []))
    others = {p.name for p in (tmp_path / "dl").iterdir()} - {"data_aishell"}
    assert others == {"resource_aishell", "utterances.jsonl"}
    # The recipe takes it for AISHELL-1.
    prepare_aishell(tmp_path / "dl", tmp_path / "manifests", nj=1)
    for part, names in found.items():
        name = f"aishell_supervisions_{part}.jsonl.gz"
        supervisions = list(load_manifest(tmp_path / "manifests" / name))
        assert {s.id: s.text for s in supervisions} == {n: texts[n] for n in names}
        assert all(s.speaker == s.id[6:11] for s in supervisions)
    assert (tmp_path / "manifests/aishell.dic").is_file()

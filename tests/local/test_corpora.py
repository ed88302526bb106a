"""LibriSpeech and AISHELL-1: layouts, pieces of them, damaged files, what is there already."""

import shutil

import numpy as np
import prepare_aishell as prepare_aishell_module
import pytest
import soundfile
from download_librispeech import is_there
from lhotse import load_manifest
from prepare_aishell import prepare_aishell
from prepare_librispeech import check_whole, grouped, prepare_librispeech

from icefall_attn.data.listing import Listed, look_at, subset
from icefall_attn.errors import UserError


def speak(path, seconds=0.5):
    path.parent.mkdir(parents=True, exist_ok=True)
    samples = 0.1 * np.random.default_rng(0).standard_normal(int(16000 * seconds))
    soundfile.write(path, samples, 16000)


@pytest.fixture
def librispeech(tmp_path):
    """Thirty speakers for training, one for each test set, two utterances each."""
    root = tmp_path / "LibriSpeech"
    for part, speakers in (
        ("train-clean-100", range(100, 130)),
        ("test-clean", [7]),
        ("test-other", [8]),
    ):
        for speaker in speakers:
            chapter = root / part / str(speaker) / "5"
            names = [f"{speaker}-5-{n:04d}" for n in range(2)]
            for name in names:
                speak(chapter / f"{name}.flac")
            lines = "".join(f"{name} HELLO WORLD\n" for name in names)
            (chapter / f"{speaker}-5.trans.txt").write_text(lines)
    return root


def read(directory, corpus, part):
    return list(load_manifest(directory / f"{corpus}_supervisions_{part}.jsonl.gz"))


PARTS = ["train-clean-100", "test-clean", "test-other"]


@pytest.mark.parametrize("inside", [False, True])
def test_librispeech_without_a_dev_part(librispeech, tmp_path, inside):
    corpus = librispeech if inside else librispeech.parent
    out = tmp_path / "manifests"
    prepare_librispeech(corpus, out, PARTS)
    sets = {
        part: read(out, "librispeech", part)
        for part in ("train", "dev", "test-clean", "test-other")
    }
    assert {part: len(s) for part, s in sets.items()} == {
        "train": 58,
        "dev": 2,
        "test-clean": 2,
        "test-other": 2,
    }
    speakers = {part: {s.speaker for s in found} for part, found in sets.items()}
    assert not speakers["train"] & speakers["dev"]
    assert all(s.text == "HELLO WORLD" for found in sets.values() for s in found)


def test_parts_make_sets():
    parts = "train-clean-100 dev-clean train-other-500 test-other dev-other".split()
    assert grouped(parts) == {
        "train": ["train-clean-100", "train-other-500"],
        "dev": ["dev-clean", "dev-other"],
        "test-other": ["test-other"],
    }


@pytest.mark.parametrize(
    "parts, words",
    [
        (["train-clean-101"], "'train-clean-101' is none of"),
        (["test-clean"], "no training part"),
    ],
)
def test_wrong_parts_are_refused(librispeech, tmp_path, parts, words):
    with pytest.raises(UserError, match=words):
        prepare_librispeech(librispeech, tmp_path / "out", parts)


def test_a_part_that_is_not_there_is_named(librispeech, tmp_path):
    with pytest.raises(UserError, match="train-other-500 holds no transcripts"):
        prepare_librispeech(librispeech, tmp_path / "out", ["train-other-500"])


# Utterances and words or characters of the whole sets, as published.
WHOLE = {
    "test-clean": (2620, 52576, "A ", "words"),
    "test-other": (2939, 52343, "A ", "words"),
    "AISHELL": (7176, 104765, "甚 ", "characters"),
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_test_set_has_its_words(name):
    count, size, word, unit = WHOLE[name]
    rest = [load_text("")] * (count - 1)

    def check(utterances):
        if name == "AISHELL":
            prepare_aishell_module.check_whole(utterances)
        else:
            check_whole(name, utterances)

    check([load_text(word)] * 10)  # a piece
    check([load_text(word * size)] + rest)
    for wrong in (size - 1, size + 1):
        with pytest.raises(UserError, match=f"has {wrong} {unit}, not {size}"):
            check([load_text(word * wrong)] + rest)


def load_text(text):
    from lhotse import SupervisionSegment

    return None, SupervisionSegment("a", "a", 0, 1, text=text)


def test_unpacking_that_was_cut_off_is_not_taken_for_a_part(librispeech):
    dl_dir = librispeech.parent
    assert is_there(dl_dir, "test-clean") and not is_there(dl_dir, "dev-clean")
    (dl_dir / "test-clean.tar.gz").touch()
    assert not is_there(dl_dir, "test-clean")
    (librispeech / "test-clean/.completed").touch()
    assert is_there(dl_dir, "test-clean")


@pytest.fixture
def aishell(tmp_path):
    corpus = tmp_path / "data_aishell"
    lines = []
    for part, speaker in (("train", "S0002"), ("dev", "S0724"), ("test", "S0764")):
        for number in range(2):
            id = f"BAC009{speaker}W012{number}"
            speak(corpus / "wav" / part / speaker / f"{id}.wav")
            lines.append(f"{id} 甚至 出现 ｂ 交易\n")
    (corpus / "transcript").mkdir()
    transcript = corpus / "transcript/aishell_transcript_v0.8.txt"
    transcript.write_text("".join(lines), encoding="utf-8")
    return corpus


def test_aishell(aishell, tmp_path):
    speak(aishell / "wav/train/S0002/BAC009S0002W0999.wav")  # without a transcript
    out = tmp_path / "manifests"
    prepare_aishell(tmp_path, out)
    for part, speaker in (("train", "S0002"), ("dev", "S0724"), ("test", "S0764")):
        found = read(out, "aishell", part)
        assert [s.id[-1] for s in found] == ["0", "1"]
        assert {s.speaker for s in found} == {speaker}
        assert {s.text for s in found} == {"甚至 出现 B 交易"}
    assert not (out / "aishell.dic").exists()


def test_lexicon_of_aishell_is_taken_if_it_is_there(aishell, tmp_path):
    lexicon = tmp_path / "resource_aishell/lexicon.txt"
    lexicon.parent.mkdir()
    lexicon.write_text("甚至 sh en4 zh ix4\n", encoding="utf-8")
    out = tmp_path / "manifests"
    prepare_aishell(tmp_path, out)
    taken = out / "aishell.dic"
    assert taken.read_text(encoding="utf-8") == lexicon.read_text(encoding="utf-8")
    lexicon.unlink()
    prepare_aishell(tmp_path, out)
    assert not taken.exists()


def test_bad_audio_is_left_out_and_named(aishell, tmp_path):
    speaker = aishell / "wav/train/S0002"
    for number in range(2, 5):
        (speaker / f"BAC009S0002W012{number}.wav").write_bytes(b"no audio")
    transcript = aishell / "transcript/aishell_transcript_v0.8.txt"
    with open(transcript, "a", encoding="utf-8") as file:
        file.writelines(f"BAC009S0002W012{n} 你好\n" for n in range(2, 5))
    out = tmp_path / "manifests"
    with pytest.raises(UserError, match="3 of 5 utterances .*max-bad-share 0.01"):
        prepare_aishell(aishell, out)
    prepare_aishell(aishell, out, max_bad_share=0.6)
    assert len(read(out, "aishell", "train")) == 2
    report = (out / "aishell_left-out_train.txt").read_text()
    assert report.count("cannot be read as audio") == 3


def test_archives_of_aishell_that_are_not_unpacked(aishell, tmp_path):
    shutil.rmtree(aishell / "wav/train")
    (aishell / "wav/S0002.tar.gz").touch()
    with pytest.raises(UserError, match="wav holds archives: unpack them"):
        prepare_aishell(aishell, tmp_path / "manifests")


def test_double_and_empty_transcripts_of_aishell(aishell, tmp_path):
    """The first of two is taken and the second named; an empty one is left to the features stage."""
    transcript = aishell / "transcript/aishell_transcript_v0.8.txt"
    with open(transcript, "a", encoding="utf-8") as file:
        file.write("BAC009S0002W0120 完全 不同\nBAC009S0002W0125 \n")
    speak(aishell / "wav/train/S0002/BAC009S0002W0125.wav")
    out = tmp_path / "manifests"
    prepare_aishell(aishell, out, max_bad_share=0.5)
    texts = {s.id: s.text for s in read(out, "aishell", "train")}
    assert texts["BAC009S0002W0120"] == "甚至 出现 B 交易"
    assert texts["BAC009S0002W0125"] == ""
    report = (out / "aishell_left-out_train.txt").read_text(encoding="utf-8")
    assert "listed twice: '甚至 出现 B 交易' and then '完全 不同'" in report


def test_looking_at_audio(tmp_path):
    """Missing, empty and repeated files are told apart; the order stays, however many look."""
    speak(tmp_path / "good.wav")
    soundfile.write(tmp_path / "empty.wav", np.zeros(0), 16000)
    names = ["good", "lost", "empty"]
    listed = [Listed(n, tmp_path / f"{n}.wav", "A", "s", "English") for n in names]
    listed += [
        Listed(f"more{i}", tmp_path / "good.wav", "A", "s", "E") for i in range(9)
    ]
    listed.append(listed[0])
    report = tmp_path / "report.txt"
    for nj in (1, 4):
        found = look_at(listed, report, max_bad_share=0.5, nj=nj)
        assert [r.id for r, _ in found] == ["good"] + [f"more{i}" for i in range(9)]
        reasons = dict(line.split("\t") for line in report.read_text().splitlines())
        assert "is missing" in reasons["lost"]
        assert "holds no samples" in reasons["empty"]
        assert "listed twice" in reasons["good"]
    look_at(listed[:1], report, max_bad_share=0.0)
    assert not report.exists()


def test_a_subset_is_drawn_from_everywhere_and_always_the_same(tmp_path):
    speak(tmp_path / "a.wav", seconds=1.0)
    listed = [Listed(str(i), tmp_path / "a.wav", "A", "s", "E") for i in range(100)]
    everything = look_at(listed, tmp_path / "report.txt", 0.0)
    some = subset(everything, hours=20 / 3600)
    assert some == subset(everything, hours=20 / 3600) and len(some) == 20
    places = [int(r.id) for r, _ in some]
    assert places == sorted(places) and places[0] < 25 and places[-1] > 75
    assert subset(everything, hours=0) == everything

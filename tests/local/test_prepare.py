"""Tokens, validation and statistics of a tiny corpus, as the recipes call them."""

import numpy as np
import pytest
import compute_fbank
from describe_data import describe
from lhotse import CutSet, SupervisionSegment, load_manifest
from prepare_an4 import prepare_an4
from prepare_tokens import choose_texts, prepare_tokens
from toy_manifests import TEXTS
from validate_data import validate

from icefall_attn.data.manifests import write_manifest, write_part
from icefall_attn.data.tokenizer import load_tokenizer, train_char
from icefall_attn.errors import UserError


def test_prepare_tokens(manifests, tmp_path):
    train = manifests / "toy_supervisions_train.jsonl.gz"
    lang = tmp_path / "lang"
    prepare_tokens([train], "bpe", lang, vocab_size=13)
    assert load_tokenizer(lang).vocab_size == 13
    assert (lang / "transcript_words.txt").read_text().splitlines() == list(TEXTS)
    # The characters that come now must not be taken for the pieces of then.
    prepare_tokens([train], "char", lang)
    assert load_tokenizer(lang).tokens[3:] == ["▁", *sorted(set("ONETWOTHREE"))]
    prepare_tokens([train], "char", lang, drop_spaces=True)
    assert load_tokenizer(lang).tokens[3:] == sorted(set("ONETWOTHREE"))
    test = manifests / "toy_supervisions_test.jsonl.gz"
    for paths, kind, size, message in (
        ([train, test], "char", None, "no training set; tokens"),
        ([train], "bpe", None, "--vocab-size is None"),
        ([train], "bpe", 999, "vocab_size=999"),
        ([train], "lexicon", None, "needs --lexicon"),
        ([tmp_path / "x_train.jsonl.gz"], "char", None, "is missing"),
    ):
        with pytest.raises(UserError, match=message):
            prepare_tokens(paths, kind, lang, size)


def test_pieces_from_some_of_the_texts(tmp_path):
    """Of 200 texts 20 are taken, and the one text with a Z."""
    spoken = [
        SupervisionSegment(str(i), "r", 0, 1, text=" ".join(TEXTS) * (1 + i % 3))
        for i in range(200)
    ]
    spoken[150].text = "ZERO"
    write_part(tmp_path, "toy", "train", [], spoken)
    lang = tmp_path / "lang"
    train = tmp_path / "toy_supervisions_train.jsonl.gz"
    prepare_tokens([train], "bpe", lang, vocab_size=14, bpe_texts=20)
    written = (lang / "transcript_words.txt").read_text().splitlines()
    assert written == [s.text for s in spoken]
    tokenizer = load_tokenizer(lang)
    assert tokenizer.decode(tokenizer.encode("ZERO TWO")) == "ZERO TWO"
    chosen = choose_texts(iter(written), 20)
    assert 20 < len(chosen) < 25 and "ZERO" in chosen
    assert choose_texts(iter(written), 200) == written


@pytest.fixture
def cuts(compute, tmp_path):
    """A file of 15 cuts, three speeds of five utterances, with features in numpy files."""
    options = ("--perturb", "train", "--storage", "numpy", "--nj", 1)
    compute(tmp_path / "fbank", "--parts", "train", *options)
    return tmp_path / "fbank/toy_cuts_train.jsonl.gz"


def changed(path, change):
    cuts = list(load_manifest(path))
    change(cuts)
    write_manifest(CutSet.from_cuts(cuts), path)


@pytest.fixture
def tokenizer():
    return train_char(TEXTS, keep_spaces=True)


def test_validate_accepts(run_program, cuts, tokenizer, tmp_path):
    tokenizer.save(tmp_path / "lang")
    done = run_program(
        "local", "validate_data.py", "--cuts", cuts, "--lang-dir", tmp_path / "lang"
    )
    assert done.returncode == 0 and "15 utterances, sound" in done.stderr


def no_transcript(cuts):
    cuts[1].supervisions = []


def twice(cuts):
    cuts.append(cuts[0])


def short_transcript(cuts):
    cuts[1].supervisions[0].duration -= 0.1


def fewer_frames(cuts):
    cuts[1].duration = cuts[1].supervisions[0].duration = 5.0


def no_features(cuts):
    cuts[1].features = None


def no_features_at_all(cuts):
    for cut in cuts:
        cut.features = None


def not_finite(cuts):
    path = f"{cuts[1].features.storage_path}/{cuts[1].features.storage_key}"
    values = np.load(path)
    values[3, 4] = np.nan
    np.save(path, values)


def unknown_character(cuts):
    cuts[1].supervisions[0].text = "ONE ZERO"


def empty_text(cuts):
    cuts[1].supervisions[0].text = ""


def too_many_tokens(cuts):
    cuts[1].supervisions[0].text = "ONE " * 20


@pytest.mark.parametrize(
    "change, message",
    [
        (no_transcript, "0 transcripts, not one"),
        (twice, "there twice"),
        (short_transcript, "its transcript goes from"),
        (fewer_frames, "lasts 5.0 s, its features 0.5"),
        (no_features, "has no features"),
        (not_finite, "not finite"),
        (unknown_character, "1 of 15 utterances with characters that no token covers"),
        (empty_text, "1 of 15 utterances with an empty transcript"),
        (too_many_tokens, "1 of 15 utterances with more tokens than encoder frames"),
    ],
)
def test_validate_refuses(cuts, tokenizer, change, message):
    changed(cuts, change)
    with pytest.raises(UserError, match=message):
        validate(str(cuts), tokenizer)


def test_misfits_are_listed_as_long_as_there_are_any(cuts, tokenizer):
    other = cuts.with_name("toy_cuts_test.jsonl.gz")
    cuts.rename(other)
    changed(other, unknown_character)
    changed(other, too_many_tokens)
    validate(str(other), tokenizer)
    spoilt = list(load_manifest(other))[1].id
    listed = other.with_name("toy_cuts_test.misfits.txt")
    assert listed.read_text() == f"{spoilt}\tmore tokens than encoder frames\n"
    changed(other, lambda cuts: setattr(cuts[1].supervisions[0], "text", "ONE"))
    validate(str(other), tokenizer)
    assert not listed.exists()


def test_only_so_many_features_are_loaded(cuts, tokenizer, caplog):
    changed(cuts, not_finite)
    with caplog.at_level("INFO"):
        validate(str(cuts), tokenizer, load=0)
    assert f"{cuts}: 15 utterances, sound; features of 0 loaded" in caplog.messages
    with pytest.raises(UserError, match="not finite"):
        validate(str(cuts), tokenizer, load=15)
    # A random choice of 14 leaves one out; of all of them all are as likely.
    changed(cuts, no_features_at_all)
    with caplog.at_level("INFO"):
        validate(str(cuts), tokenizer, load=14)
    assert f"{cuts}: 15 utterances, sound; features of 14 loaded" in caplog.messages


def test_audio_is_checked_where_there_are_no_features(cuts, tokenizer, tmp_path):
    changed(cuts, no_features_at_all)
    (tmp_path / "train2.wav").write_bytes(b"RIFF")
    with pytest.raises(UserError, match="cannot load the audio of 'train2.*in all: 3"):
        validate(str(cuts), tokenizer)


def test_odd_texts_are_allowed_in_a_test_set(cuts, tokenizer):
    changed(cuts, unknown_character)
    other = cuts.with_name("toy_cuts_test.jsonl.gz")
    cuts.rename(other)
    validate(str(other), tokenizer)


def test_statistics(cuts, tokenizer):
    text = "\n".join(describe(str(cuts), tokenizer))
    assert "15, 10 of them copies" in text
    assert "5, 1 to 1 utterances each" in text
    assert "8, 3 different" in text
    assert "ONE 3" in text and "TWO 3" in text
    assert "unknown tokens    0" in text


def test_an4_from_corpus_to_validation(real_an4, call_main, tmp_path):
    manifests = tmp_path / "manifests"
    prepare_an4(real_an4, manifests)
    call_main(
        *(compute_fbank.main, "--manifest-dir", manifests, "--prefix", "an4"),
        *("--parts", "dev", "test", "--nj", 1, "--output-dir", tmp_path / "fbank"),
    )
    train = load_manifest(manifests / "an4_supervisions_train.jsonl.gz")
    tokenizer = train_char((s.text for s in train), keep_spaces=True)
    assert tokenizer.vocab_size == 30
    for part, count in (("dev", 106), ("test", 130)):
        path = tmp_path / f"fbank/an4_cuts_{part}.jsonl.gz"
        validate(str(path), tokenizer)
        assert len(load_manifest(path)) == count

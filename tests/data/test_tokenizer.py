"""Tokenizers: round trips, one id for `<unk>`, files."""

import random

import pytest

from icefall_attn.data.tokenizer import (
    BLANK_ID,
    SOS_EOS_ID,
    UNK_ID,
    BpeTokenizer,
    CharTokenizer,
    load_tokenizer,
    train_bpe,
    train_char,
)
from icefall_attn.errors import UserError

WORDS = "zero one two three four five six seven eight nine hundred thousand".split()


def texts(count=200, seed=0):
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(1, 7))) for _ in range(count)]


@pytest.fixture(scope="module")
def bpe():
    return train_bpe(texts(), 30)


@pytest.fixture(scope="module")
def char():
    return train_char(texts(), keep_spaces=True)


@pytest.fixture(params=["bpe", "char"])
def tokenizer(request):
    return request.getfixturevalue(request.param)


def test_special_tokens_come_first(tokenizer):
    assert tokenizer.tokens[:3] == ["<blk>", "<sos/eos>", "<unk>"]
    assert (BLANK_ID, SOS_EOS_ID, UNK_ID) == (0, 1, 2)
    assert tokenizer.vocab_size == len(tokenizer.tokens) == len(set(tokenizer.tokens))


def test_round_trip(tokenizer):
    for text in texts(50, seed=1):
        ids = tokenizer.encode(text)
        assert all(UNK_ID < i < tokenizer.vocab_size for i in ids)
        assert tokenizer.decode(ids) == text


def test_white_space_does_not_matter(tokenizer):
    assert tokenizer.encode("  one\t two \n") == tokenizer.encode("one two")
    assert tokenizer.encode("") == tokenizer.encode("  ") == []
    assert tokenizer.decode([]) == ""


def test_unk_is_one_id(tokenizer):
    assert tokenizer.encode("<unk>") == [UNK_ID]
    ids = tokenizer.encode("<unk> one <unk> two")
    assert ids[0] == UNK_ID
    assert ids.count(UNK_ID) == 2
    assert tokenizer.decode(ids) == "<unk> one <unk> two"


def test_unknown_characters_give_unk(tokenizer):
    ids = tokenizer.encode("one ß two")
    assert ids.count(UNK_ID) == 1
    without = [i for i in tokenizer.encode("one two")]
    assert [i for i in ids if i in without and i != UNK_ID][:2] == without[:2]


def test_decode_drops_blank_and_sos(tokenizer):
    ids = tokenizer.encode("one two")
    noisy = [BLANK_ID, SOS_EOS_ID]
    for i in ids:
        noisy += [i, BLANK_ID]
    assert tokenizer.decode(noisy) == "one two"


def test_save_and_load(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    again = load_tokenizer(tmp_path)
    assert type(again) is type(tokenizer)
    assert again.tokens == tokenizer.tokens
    assert again.encode("three nine <unk>") == tokenizer.encode("three nine <unk>")


def test_unk_in_training_text_is_not_spelled():
    noisy = [f"<unk> {text} <unk>" for text in texts()]
    assert train_char(noisy, keep_spaces=True).tokens == (
        train_char(texts(), keep_spaces=True).tokens
    )
    assert not any("<" in t for t in train_bpe(noisy, 30).tokens[3:])


def test_characters_without_spaces():
    tokenizer = train_char(["今天 天气", "好"], keep_spaces=False)
    assert tokenizer.vocab_size == 3 + 4
    ids = tokenizer.encode("天 气<unk>好")
    assert len(ids) == 4 and ids[2] == UNK_ID
    assert tokenizer.decode(ids) == "天气<unk>好"
    assert tokenizer.unit == "char"


def test_words_are_the_unit_where_there_are_spaces(tokenizer):
    assert tokenizer.unit == "word"


def test_a_written_boundary_is_no_space(char):
    ids = char.encode("one▁two")
    assert ids.count(UNK_ID) == 1
    assert char.tokens.index("▁") not in ids


def test_bpe_uses_long_lines():
    long = " ".join(texts(400))
    assert len(long) > 4192
    assert train_bpe([long], 30).vocab_size == 30


def test_errors_name_the_fault(tmp_path, bpe):
    with pytest.raises(UserError, match="tokens.txt is missing"):
        load_tokenizer(tmp_path)
    with pytest.raises(UserError, match="empty"):
        train_char([" "], keep_spaces=True)
    with pytest.raises(UserError, match="empty"):
        train_bpe(["<unk>"], 10)
    with pytest.raises(UserError, match="vocab_size=5000"):
        train_bpe(texts(), 5000)
    with pytest.raises(UserError, match="first three tokens"):
        CharTokenizer(["a", "b", "c"])
    with pytest.raises(UserError, match="'a' is listed twice"):
        CharTokenizer(["<blk>", "<sos/eos>", "<unk>", "a", "a"])

    bpe.save(tmp_path)
    tokens = (tmp_path / "tokens.txt").read_text()
    (tmp_path / "tokens.txt").write_text(tokens + "extra 30\n")
    with pytest.raises(UserError, match="does not list the pieces"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokens.txt").write_text(tokens.replace(" 7\n", " 8\n"))
    with pytest.raises(UserError, match="line 8"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokens.txt").write_text(tokens)
    (tmp_path / "bpe.model").write_bytes(b"nonsense")
    with pytest.raises(UserError, match="no sentencepiece model"):
        load_tokenizer(tmp_path)


def test_bpe_model_is_kept_as_it_is(bpe, tmp_path):
    bpe.save(tmp_path)
    assert BpeTokenizer((tmp_path / "bpe.model").read_bytes()).tokens == bpe.tokens

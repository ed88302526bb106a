"""Words as phones."""

import pytest

from icefall_attn.data.lexicon import load_lexicon, read_lexicon
from icefall_attn.data.tokenizer import UNK_ID
from icefall_attn.errors import UserError

DICTIONARY = """;;; a comment
A                    AH
A(2)                 EY
AND                  AE N D
NINE                 N AY N

ZOO                  Z UW
"""


@pytest.fixture
def lexicon(tmp_path):
    (tmp_path / "cmu.dic").write_text(DICTIONARY)
    return read_lexicon(tmp_path / "cmu.dic", ["A NINE", "AND A"])


def test_words_become_their_first_pronunciation(lexicon):
    ids = lexicon.encode("NINE AND A")
    assert lexicon.decode(ids) == "N AY N AE N D AH"
    assert min(ids) > UNK_ID


def test_only_words_of_the_training_text_are_taken(lexicon):
    assert "Z" not in lexicon.tokens and "EY" not in lexicon.tokens
    assert lexicon.encode("ZOO A") == [UNK_ID, lexicon.tokens.index("AH")]
    assert lexicon.encode("") == []


def test_round_trip_through_files(lexicon, tmp_path):
    lexicon.save(tmp_path / "lang")
    loaded = load_lexicon(tmp_path / "lang")
    assert loaded.tokens == lexicon.tokens and loaded.lexicon == lexicon.lexicon


def test_what_is_wrong_is_named(tmp_path):
    with pytest.raises(UserError, match="nowhere.dic is missing"):
        read_lexicon(tmp_path / "nowhere.dic", ["A"])
    (tmp_path / "bad.dic").write_text("A AH\nEMPTY\n")
    with pytest.raises(UserError, match="line 2: 'EMPTY' has no phones"):
        read_lexicon(tmp_path / "bad.dic", ["A"])
    (tmp_path / "good.dic").write_text("A AH\n")
    with pytest.raises(UserError, match="no word of the training text"):
        read_lexicon(tmp_path / "good.dic", ["B"])
    with pytest.raises(UserError, match="lexicon.txt is missing"):
        load_lexicon(tmp_path)

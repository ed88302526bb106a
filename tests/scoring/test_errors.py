"""Error counts with values worked out by hand."""

import math

import pytest

from icefall_attn.errors import UserError
from icefall_attn.scoring import score


@pytest.mark.parametrize(
    "ref, hyp, sub, dels, ins",
    [
        ("", "", 0, 0, 0),
        ("", "a", 0, 0, 1),
        ("a", "", 0, 1, 0),
        ("a b c", "a b c", 0, 0, 0),
        ("a b c", "a x c", 1, 0, 0),
        ("a b c", "a c", 0, 1, 0),
        ("a c", "a b c", 0, 0, 1),
        ("a b c d", "b c d e", 0, 1, 1),
        ("  a   b ", "a b", 0, 0, 0),
        ("a *", "a", 0, 1, 0),  # icefall's mark for "nothing" as a word
        ("a", "a *", 0, 0, 1),
        ("*", "b", 1, 0, 0),
    ],
)
def test_single_utterance(ref, hyp, sub, dels, ins):
    result = score({"u": ref}, {"u": hyp})
    counts = (result.substitutions, result.deletions, result.insertions)
    assert counts == (sub, dels, ins)
    assert result.ref_units == len(ref.split())
    assert result.correct == len(ref.split()) - sub - dels


def test_corpus_rate_is_errors_over_reference_words():
    """Rates of the utterances are 100 % and 0 %; of the corpus 1 error in 10 words."""
    references = {"short": "a", "long": "b c d e f g h i j"}
    hypotheses = {"short": "x", "long": "b c d e f g h i j"}
    assert score(references, hypotheses).rate == pytest.approx(10.0)


def test_insertions_do_not_count_as_reference_words():
    result = score({"u": "a b"}, {"u": "a x b y"})
    assert (result.ref_units, result.errors, result.rate) == (2, 2, 100.0)


def test_missing_utterance_counts_as_deletions():
    result = score({"u": "a b c", "v": "d"}, {"v": "d"})
    assert (result.deletions, result.ref_units) == (3, 4)
    assert result.missing == ["u"]
    assert result.rate == pytest.approx(75.0)


def test_counts_add_up_on_random_texts():
    import random

    rng = random.Random(0)
    texts = [" ".join(rng.choices("abcd", k=rng.randrange(9))) for _ in range(200)]
    references = {str(i): text for i, text in enumerate(texts)}
    hypotheses = {str(i): text for i, text in enumerate(reversed(texts))}
    result = score(references, hypotheses)
    words = sum(len(text.split()) for text in texts)
    assert result.substitutions + result.deletions + result.correct == words
    # The hypotheses are the same texts, so their words add up to the same number.
    assert result.substitutions + result.insertions + result.correct == words
    assert result.errors > 0


def test_no_reference_words_at_all():
    assert score({"u": ""}, {"u": ""}).rate == 0.0
    assert score({"u": ""}, {"u": "a"}).rate == math.inf
    assert score({}, {}).rate == 0.0


def test_characters():
    result = score({"u": "你 好 ab"}, {"u": "你好a c"}, unit="char")
    assert (result.ref_units, result.substitutions, result.errors) == (4, 1, 1)
    assert result.rate == pytest.approx(25.0)


def test_console_line():
    references = {"u": "one two three four"}
    line = score(references, {"u": "one too four five"}).console_line("test-greedy")
    assert line == "[test-greedy] %WER 75.00% [3 / 4, 1 ins, 1 del, 1 sub ]"
    line = score({"u": "ab"}, {"u": "ab"}, "char").console_line("dev")
    assert line == "[dev] %CER 0.00% [0 / 2, 0 ins, 0 del, 0 sub ]"


def test_refusals():
    with pytest.raises(UserError, match="hypothesis for 'v', which has no reference"):
        score({"u": "a"}, {"v": "a"})
    with pytest.raises(UserError, match="unit must be 'word' or 'char', not 'phone'"):
        score({"u": "a"}, {"u": "a"}, unit="phone")

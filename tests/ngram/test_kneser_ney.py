"""Kneser-Ney smoothing against the formula, computed word by word."""

import gzip
import random
from collections import Counter

import pytest
from arpa_model import ArpaModel

from icefall_attn.errors import UserError
from icefall_attn.ngram import count_ngrams, kneser_ney, read_words, write_arpa
from icefall_attn.ngram.arpa import open_arpa


def some_text(sentences: int, seed: int = 0):
    """Sentences of 0 to 8 words; few are frequent, and some follow each other often."""
    choose = random.Random(seed)
    text = []
    for _ in range(sentences):
        sentence = []
        for _ in range(choose.randint(0, 8)):
            likely = sentence and choose.random() < 0.4
            rank = int(choose.paretovariate(0.7))
            sentence.append(sentence[-1] + "x" if likely else f"w{min(rank, 300)}")
        text.append(sentence)
    return text


def estimate(text, order, path):
    words, orders = count_ngrams(text, order)
    write_arpa(path, words, orders, kneser_ney(orders))
    return ArpaModel(path)


def naive(text, order):
    """p(word | history) by Chen and Goodman's recursion, from counters."""
    padded = [("<s>", *sentence, "</s>") for sentence in text if sentence]
    raw = [
        Counter(s[i : i + n] for s in padded for i in range(len(s) - n + 1))
        for n in range(1, order + 1)
    ]
    adjusted = []
    for n in range(1, order + 1):
        if n == order:
            counts = dict(raw[n - 1])
        else:
            counts = Counter(gram[1:] for gram in raw[n])
            counts.update({g: c for g, c in raw[n - 1].items() if g[0] == "<s>"})
        counts.pop(("<s>",), None)
        adjusted.append(counts)
    discounts = []
    for counts in adjusted:
        of = Counter(counts.values())
        y = of[1] / (of[1] + 2 * of[2])
        discounts.append([k - (k + 1) * y * of[k + 1] / of[k] for k in (1, 2, 3)])
        assert min(discounts[-1]) > 0
    vocabulary = len(raw[0]) - 1

    def probability(history, word):
        n = len(history)
        after = {g: c for g, c in adjusted[n].items() if g[:-1] == history}
        lower = probability(history[1:], word) if n else 1 / vocabulary
        if not after:
            return lower
        minus = {g: discounts[n][min(c, 3) - 1] for g, c in after.items()}
        gram, total = (*history, word), sum(after.values())
        own = (after[gram] - minus[gram]) / total if gram in after else 0.0
        return own + sum(minus.values()) / total * lower

    return probability


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_equals_the_formula(tmp_path, order):
    text = some_text(400)
    model = estimate(text, order, tmp_path / "lm.arpa")
    expected = naive(text, order)
    words = sorted(g[0] for g in model.logs if len(g) == 1 and g != ("<s>",))
    words = random.Random(0).sample(words, 40)
    histories = {g[:-1] for g in model.logs if len(g) == order}
    histories |= {("w1",) * (order - 1), ("<s>",)[: order - 1]}  # unseen, and the start
    for history in random.Random(0).sample(sorted(histories), min(20, len(histories))):
        for word in words:
            found = 10 ** model.log10(history, word)
            assert found == pytest.approx(expected(history, word), rel=1e-4)


@pytest.mark.parametrize("sentences", [1, 5, 400])
@pytest.mark.parametrize("order", [1, 2, 3])
def test_every_history_sums_to_one(tmp_path, sentences, order):
    """Also where the text is too small to estimate discounts."""
    text = some_text(sentences, seed=1)
    model = estimate(text, order, tmp_path / "lm.arpa")
    assert model.header == [
        sum(len(g) == n for g in model.logs) for n in range(1, order + 1)
    ]
    words = [g[0] for g in model.logs if len(g) == 1 and g != ("<s>",)]
    assert {w for s in text for w in s} | {"</s>"} == set(words)
    for history in {g for g in model.logs if g[-1] != "</s>"} | {()}:
        total = sum(10 ** model.log10(history, word) for word in words)
        assert total == pytest.approx(1.0, abs=1e-4)


def test_counts_stop_at_the_ends_of_sentences():
    words, (one, two) = count_ngrams([["a", "b"], [], ["b"]], 2)
    assert words == ["<s>", "</s>", "a", "b"]
    assert dict(zip(words, one.count)) == {"<s>": 2, "</s>": 2, "a": 1, "b": 2}
    pairs = {
        (words[p], words[w]): c for p, w, c in zip(two.prefix, two.word, two.count)
    }
    assert pairs == {
        ("<s>", "a"): 1,
        ("a", "b"): 1,
        ("b", "</s>"): 2,
        ("<s>", "b"): 1,
    }
    assert [words[s] for s in two.suffix] == [words[w] for w in two.word]


def test_words_of_a_file_plain_or_gzipped(tmp_path):
    plain, zipped = tmp_path / "lm.arpa", tmp_path / "lm.arpa.gz"
    estimate([["a", "<unk>", "b"]], 2, plain)
    zipped.write_bytes(gzip.compress(plain.read_bytes()))
    for path in (plain, zipped):
        with open_arpa(path) as file:
            assert read_words(file, path) == ["a", "b"]


@pytest.mark.parametrize("content", [b"", b"hello\n", b"\x1f\x8bxx", b"\\1-grams:\na"])
def test_no_arpa_file_is_one_clear_line(tmp_path, content):
    path = tmp_path / "lm.arpa"
    path.write_bytes(content)
    with pytest.raises(UserError, match="lm.arpa is .*not in ARPA format"):
        with open_arpa(path) as file:
            read_words(file, path)


@pytest.mark.parametrize(
    "text, order, message",
    [
        ([[]], 2, "the training text is empty"),
        ([["a"]], 4, "no sentence is long enough for order 4; take 3"),
        ([["a", "</s>"]], 2, "the text holds '</s>'"),
    ],
)
def test_bad_text(text, order, message):
    with pytest.raises(UserError, match=message):
        count_ngrams(text, order)

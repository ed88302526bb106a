"""A pruned model is a model: each history's probabilities add up to 1, kept n-grams have theirs."""

import random
from collections import Counter

import pytest
from arpa_model import ArpaModel

from icefall_attn.ngram import count_ngrams, kneser_ney, prune, write_arpa


def some_text(sentences):
    choose = random.Random(1)
    return [
        [
            f"w{min(int(choose.paretovariate(0.8)), 40)}"
            for _ in range(choose.randint(1, 7))
        ]
        for _ in range(sentences)
    ]


def model(text, order, min_count, path):
    words, orders = count_ngrams(text, order)
    orders, estimates = prune(orders, kneser_ney(orders), min_count)
    write_arpa(path, words, orders, estimates)
    return words, orders, ArpaModel(path)


@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("min_count", [2, 4, 10_000])
def test_pruned(tmp_path, order, min_count):
    text = some_text(300)
    words, _, whole = model(text, order, 1, tmp_path / "whole.arpa")
    _, orders, pruned = model(text, order, min_count, tmp_path / "pruned.arpa")
    padded = [("<s>", *sentence, "</s>") for sentence in text]
    raw = Counter(s[i : i + order] for s in padded for i in range(len(s) - order + 1))
    kept = {gram for gram, count in raw.items() if count >= min_count}
    assert len(orders[-1].word) == len(kept) < len(raw)
    for *history, word in kept:
        expected = whole.log10(tuple(history), word)
        assert pruned.log10(tuple(history), word) == pytest.approx(expected, abs=1e-4)
    for n in range(2, order):
        shorter = Counter(s[i : i + n] for s in padded for i in range(len(s) - n + 1))
        rare = [gram for gram, count in shorter.items() if count < min_count]
        assert rare and not any(gram in pruned.logs for gram in rare)
    histories = {gram[:-1] for gram in raw} | {("w1",) * (order - 1)}
    for history in sorted(histories)[::7]:
        total = sum(
            10 ** pruned.log10(history, word) for word in words if word != "<s>"
        )
        assert total == pytest.approx(1.0, abs=1e-4)


def test_nothing_to_prune(tmp_path):
    text = some_text(50)
    for order, min_count in ((1, 5), (3, 1)):
        words, orders = count_ngrams(text, order)
        write_arpa(tmp_path / "whole", words, orders, kneser_ney(orders))
        pruned = prune(orders, kneser_ney(orders), min_count)
        write_arpa(tmp_path / "pruned", words, *pruned)
        whole = (tmp_path / "whole").read_text()
        assert (tmp_path / "pruned").read_text() == whole

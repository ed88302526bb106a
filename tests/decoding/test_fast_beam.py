"""k2's graph search against the exact best path."""

from dataclasses import replace

import pytest
import torch
from decoding_helpers import (
    TinyTransducer,
    enumerate_alignments,
    labels,
    random_batch,
    sequence_scores,
)

from icefall_attn.decoding import SearchConfig, search
from icefall_attn.decoding.fast_beam import history_length
from icefall_attn.errors import UserError

k2 = pytest.importorskip("k2")

EXACT = SearchConfig(
    "fast_beam_search",
    fast_beam=1e4,
    max_contexts=10000,
    max_states=10000,
    nbest=5,
    length_norm=False,
)


@pytest.mark.parametrize("seed", range(6))
def test_finds_the_exact_best_path(kind, seed):
    """With histories as long as the utterance the LSTM search is exact, too."""
    model = TinyTransducer(kind, vocab=4, seed=seed)
    lengths = [5, 2, 4, 1, 0]
    encoder_out, lens = random_batch(lengths, seed=seed)
    results = search(model, encoder_out, lens, replace(EXACT, history=6))
    on_last = 0
    for b, length in enumerate(lengths):
        alignments = enumerate_alignments(model, encoder_out[b, :length])
        best = max(alignments, key=alignments.get)
        found = {tuple(h.tokens): h for h in results[b]}[labels(best)]
        assert found.frames == [t for t, token in enumerate(best) if token != 0]
        total = sequence_scores(alignments)[labels(best)]
        assert found.score == pytest.approx(total, abs=1e-4)
        on_last += bool(best and best[-1] != 0)
    assert on_last > 0  # a symbol on the last frame is among the cases


def test_symbol_on_the_last_frame_only(kind):
    model = TinyTransducer(kind, vocab=4)
    # Blank wins by far in all frames but the last, where it cannot win.
    model.joiner.enc.weight.data.zero_()
    model.joiner.enc.bias.data.zero_()
    model.joiner.enc.weight.data[0, 0] = 10.0
    model.joiner.out.weight.data[0, 0] = 30.0
    encoder_out = torch.full((1, 4, 6), 5.0)
    encoder_out[0, 3] = -5.0
    results = search(model, encoder_out, torch.tensor([4]), EXACT)
    assert results[0][0].frames == [3]


@pytest.mark.parametrize("length_norm", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_nbest_is_exact(kind, seed, length_norm):
    """The sequences of the best alignments, each once, ranked by the sum of its alignments."""
    model = TinyTransducer(kind, vocab=3, seed=seed)
    encoder_out, lens = random_batch([5], seed=seed)
    # A history longer than the utterance: contexts are whole sequences, nothing recombines.
    config = replace(EXACT, history=6, nbest=20, length_norm=length_norm)
    hypotheses = search(model, encoder_out, lens, config)[0]
    alignments = enumerate_alignments(model, encoder_out[0])
    best = {}
    for path, score in alignments.items():
        best[labels(path)] = max(score, best.get(labels(path), -1e9))
    chosen = sorted(best, key=best.get, reverse=True)[:20]
    totals = sequence_scores(alignments)
    expected = sorted(
        chosen,
        key=lambda tokens: totals[tokens] / (len(tokens) + 1 if length_norm else 1),
        reverse=True,
    )
    assert [tuple(h.tokens) for h in hypotheses] == expected
    for h in hypotheses:
        assert h.score == pytest.approx(totals[tuple(h.tokens)], abs=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_agrees_with_the_beam_search(kind, seed):
    """Two searches, one meaning of score: the same n-best where neither cuts anything."""
    model = TinyTransducer(kind, vocab=3, seed=seed)
    encoder_out, lens = random_batch([4, 3, 0], seed=seed)
    graph = search(model, encoder_out, lens, replace(EXACT, history=6, nbest=64))
    wide = SearchConfig(
        "modified_beam_search", beam_size=64, nbest=64, length_norm=False
    )
    for g, b in zip(graph, search(model, encoder_out, lens, wide)):
        assert {tuple(h.tokens) for h in g} == {tuple(h.tokens) for h in b}
        for one, other in zip(g, b):
            assert one.score == pytest.approx(other.score, abs=1e-4)


def test_lstm_keeps_the_full_history_behind_a_short_context():
    """H = 1 and one hypothesis alive: the score is greedy's, whose predictor saw all."""
    model = TinyTransducer("lstm", vocab=30, seed=1, blank_bias=2.0)
    encoder_out, lens = random_batch([8, 5] * 15, seed=1)
    greedy = search(model, encoder_out, lens, SearchConfig())
    narrow = SearchConfig(
        "fast_beam_search", history=1, max_states=1, max_contexts=1, nbest=1
    )
    checked = 0
    for g, f in zip(greedy, search(model, encoder_out, lens, narrow)):
        tokens = g[0].tokens
        if any(x == y for x, y in zip(tokens, tokens[1:])):
            continue  # a and a, a are one context of length 1: the documented limit
        checked += len(tokens) > 2
        assert f[0].tokens == tokens
        assert f[0].score == pytest.approx(g[0].score, abs=1e-3)
    assert checked > 5


def test_only_new_contexts_cost_a_predictor_step(kind):
    model = TinyTransducer(kind, blank_bias=40.0)
    encoder_out, lens = random_batch([50])
    model.predictor.steps = 0
    search(model, encoder_out, lens, SearchConfig("fast_beam_search", fast_beam=1.0))
    assert model.predictor.steps == 1


@pytest.mark.parametrize("blank_bias", [1e4, -1e4])
def test_certain_joiners(kind, blank_bias):
    model = TinyTransducer(kind, blank_bias=blank_bias)
    encoder_out, lens = random_batch([5, 3])
    results = search(model, encoder_out, lens, SearchConfig("fast_beam_search"))
    expected = [0, 0] if blank_bias > 0 else [5, 3]
    assert [len(r[0].tokens) for r in results] == expected


def test_history_bound():
    model = TinyTransducer("lstm")
    model.vocab_size = 500
    assert history_length(model, SearchConfig("fast_beam_search"), 3) == 6
    with pytest.raises(
        UserError, match="history=7 .* 500 tokens and .* 3 states; use 6 or less"
    ):
        history_length(model, SearchConfig("fast_beam_search", history=7), 3)
    model.vocab_size = 30
    assert history_length(model, SearchConfig("fast_beam_search"), 3) == 10
    stateless = TinyTransducer("stateless")
    assert history_length(stateless, SearchConfig("fast_beam_search"), 3) == 2


def test_longest_history_is_still_right():
    """At the bound k2's contexts come back as they were fed: tokens, not garbage."""
    model = TinyTransducer("lstm", vocab=500, seed=1, blank_bias=-1e4)
    encoder_out, lens = random_batch([9], seed=1)
    greedy = search(model, encoder_out, lens, SearchConfig())[0][0]
    narrow = SearchConfig("fast_beam_search", max_states=1, max_contexts=1)
    found = search(model, encoder_out, lens, narrow)[0][0]
    assert found.tokens == greedy.tokens
    assert found.score == pytest.approx(greedy.score, abs=1e-3)


def test_unusable_k2_is_one_clear_line(unusable_k2):
    model = TinyTransducer("lstm")
    encoder_out, lens = random_batch([3])
    with pytest.raises(UserError, match="needs k2") as error:
        search(model, encoder_out, lens, SearchConfig("fast_beam_search"))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("seed", range(3))
def test_many_samples_are_an_exact_sum(kind, seed):
    """What is sampled is ranked by all its alignments, sampled or not."""
    model = TinyTransducer(kind, vocab=3, seed=seed)
    lengths = [4, 0, 3]
    encoder_out, lens = random_batch(lengths, seed=seed)
    config = replace(EXACT, method="fast_beam_search_nbest", history=6, nbest=64)
    config = replace(config, num_paths=5000, nbest_scale=0.1)
    for b, found in enumerate(search(model, encoder_out, lens, config)):
        alignments = enumerate_alignments(model, encoder_out[b, : lengths[b]])
        totals = sequence_scores(alignments)
        assert {tuple(h.tokens) for h in found} == totals.keys()
        assert [h.score for h in found] == pytest.approx(
            sorted(totals.values(), reverse=True), abs=1e-4
        )
        for h in found:
            assert h.score == pytest.approx(totals[tuple(h.tokens)], abs=1e-4)
            best = max(
                (path for path in alignments if labels(path) == tuple(h.tokens)),
                key=alignments.get,
            )
            assert h.frames == [t for t, token in enumerate(best) if token != 0]


def test_few_samples_are_exact_for_what_they_hold(kind):
    model = TinyTransducer(kind, vocab=3, seed=4)
    encoder_out, lens = random_batch([5], seed=4)
    config = replace(EXACT, method="fast_beam_search_nbest", history=6, num_paths=3)
    (found,) = search(model, encoder_out, lens, config)
    totals = sequence_scores(enumerate_alignments(model, encoder_out[0]))
    assert 1 <= len(found) <= 3
    for h in found:
        assert h.score == pytest.approx(totals[tuple(h.tokens)], abs=1e-4)

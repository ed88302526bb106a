"""Greedy search against a loop that anyone can check."""

import pytest
from decoding_helpers import TinyTransducer, naive_greedy, random_batch

from icefall_attn.decoding import SearchConfig, search


@pytest.mark.parametrize("max_symbols", [1, 2, 5])
@pytest.mark.parametrize("seed", range(4))
def test_equals_naive_loop(kind, max_symbols, seed):
    model = TinyTransducer(kind, vocab=5, seed=seed, blank_bias=0.5)
    lengths = [7, 12, 1, 0, 12, 9]
    encoder_out, lens = random_batch(lengths, seed=seed)
    config = SearchConfig(max_symbols_per_frame=max_symbols)
    results = search(model, encoder_out, lens, config)
    emitted = 0
    for b, length in enumerate(lengths):
        expected = naive_greedy(model, encoder_out[b, :length], max_symbols)
        (found,) = results[b]
        assert found.tokens == expected.tokens
        assert found.frames == expected.frames
        assert found.score == pytest.approx(expected.score, abs=1e-4)
        emitted += len(found.tokens)
    assert emitted > 0


def test_never_blank_joiner_terminates(kind):
    model = TinyTransducer(kind, blank_bias=-1e4)
    encoder_out, lens = random_batch([5, 3])
    results = search(model, encoder_out, lens, SearchConfig(max_symbols_per_frame=3))
    assert [len(r[0].tokens) for r in results] == [15, 9]
    assert results[1][0].frames == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_predictor_runs_only_for_emitted_symbols(kind):
    model = TinyTransducer(kind, seed=1, blank_bias=1.0)
    encoder_out, lens = random_batch([20, 15, 3], seed=1)
    model.predictor.steps = 0
    results = search(model, encoder_out, lens, SearchConfig(max_symbols_per_frame=4))
    emitted = sum(len(r[0].tokens) for r in results)
    assert emitted > 0
    assert model.predictor.steps == 3 + emitted  # 3: the start of each sentence


def test_blank_neighbour_does_not_disturb(kind):
    """One utterance emits in frame 0 while the other says blank (NeMo PR 2701)."""
    model = TinyTransducer(kind, vocab=5, seed=2, blank_bias=1.5)
    encoder_out, lens = random_batch([6] * 40, seed=3)
    config = SearchConfig(max_symbols_per_frame=2)
    singles = [
        search(model, encoder_out[b : b + 1], lens[b : b + 1], config)[0][0]
        for b in range(len(lens))
    ]
    first_frames = {bool(s.frames and s.frames[0] == 0) for s in singles}
    assert first_frames == {True, False}
    together = search(model, encoder_out, lens, config)
    assert [r[0].tokens for r in together] == [s.tokens for s in singles]

"""Modified beam search against exhaustive enumeration."""

import math

import pytest
import torch
from decoding_helpers import (
    TinyTransducer,
    enumerate_alignments,
    labels,
    random_batch,
    sequence_scores,
)

from icefall_attn.decoding import SearchConfig, beam_state, search
from icefall_attn.decoding.beam import modified_beam_search

BEAM = SearchConfig(method="modified_beam_search", beam_size=4)


@pytest.mark.parametrize("seed", range(3))
def test_wide_beam_equals_enumeration(kind, seed):
    model = TinyTransducer(kind, vocab=3, seed=seed)
    lengths = [4, 2, 5, 0]
    encoder_out, lens = random_batch(lengths, seed=seed)
    wide = SearchConfig(
        "modified_beam_search", beam_size=64, nbest=64, length_norm=False
    )
    results = search(model, encoder_out, lens, wide)
    for b, length in enumerate(lengths):
        expected = sequence_scores(enumerate_alignments(model, encoder_out[b, :length]))
        found = {tuple(h.tokens): h.score for h in results[b]}
        assert len(found) == len(results[b])
        assert found.keys() == expected.keys()
        for tokens, score in expected.items():
            assert found[tokens] == pytest.approx(score, abs=1e-4)
        scores = [h.score for h in results[b]]
        assert scores == sorted(scores, reverse=True)
        assert torch.tensor(scores).logsumexp(0) == pytest.approx(0.0, abs=1e-4)


@pytest.mark.parametrize("beam_size", range(7, 25))
def test_dead_places_change_nothing(kind, beam_size, monkeypatch):
    """Six frames of one symbol make seven sequences; the rest of the beam stays empty,
    whichever of the impossible candidates are put there."""

    def top(values, count):
        shuffled = torch.randperm(values.shape[-1])
        best, index = values[:, shuffled].topk(count, dim=-1)
        return best, shuffled[index]

    monkeypatch.setattr(beam_state, "_top", top)
    model = TinyTransducer(kind, vocab=2, seed=beam_size)
    encoder_out, lens = random_batch([6], seed=beam_size)
    config = SearchConfig(
        "modified_beam_search", beam_size=beam_size, nbest=beam_size, length_norm=False
    )
    found = search(model, encoder_out, lens, config)[0]
    expected = sequence_scores(enumerate_alignments(model, encoder_out[0]))
    assert len(found) == len(expected) == 7
    for h in found:
        assert h.score == pytest.approx(expected[tuple(h.tokens)], abs=1e-4)


def test_frames_belong_to_a_real_alignment(kind):
    model = TinyTransducer(kind, vocab=3, seed=5)
    encoder_out, lens = random_batch([6], seed=5)
    for h in search(model, encoder_out, lens, BEAM)[0]:
        assert len(h.frames) == len(h.tokens)
        assert h.frames == sorted(set(h.frames))
        assert all(0 <= t < 6 for t in h.frames)


def test_frames_of_a_peaked_model():
    """Where one alignment dominates, the times are its times."""
    model = TinyTransducer("lstm", vocab=3, seed=2)
    model.joiner.out.weight.data *= 6
    encoder_out, lens = random_batch([6], seed=4)
    alignments = enumerate_alignments(model, encoder_out[0])
    best = max(alignments, key=alignments.get)
    assert labels(best)
    wide = SearchConfig("modified_beam_search", beam_size=64, length_norm=False)
    first = search(model, encoder_out, lens, wide)[0][0]
    assert first.frames == [t for t, token in enumerate(best) if token != 0]


@pytest.mark.parametrize("seed", range(5))
def test_beam_one_equals_greedy(kind, seed):
    model = TinyTransducer(kind, vocab=6, seed=seed)
    encoder_out, lens = random_batch([30, 17, 1, 0, 23], seed=seed)
    greedy = search(model, encoder_out, lens, SearchConfig())
    beam = search(
        model, encoder_out, lens, SearchConfig("modified_beam_search", beam_size=1)
    )
    assert sum(len(r[0].tokens) for r in greedy) > 0
    for g, b in zip(greedy, beam):
        assert (g[0].tokens, g[0].frames) == (b[0].tokens, b[0].frames)
        assert g[0].score == pytest.approx(b[0].score, abs=1e-4)


def test_beam_one_equals_greedy_on_ties(kind):
    model = TinyTransducer(kind, vocab=8)
    model.joiner.out.weight.data.zero_()
    model.joiner.out.bias.data.zero_()
    encoder_out, lens = random_batch([9, 4])
    greedy = search(model, encoder_out, lens, SearchConfig())
    beam = search(
        model, encoder_out, lens, SearchConfig("modified_beam_search", beam_size=1)
    )
    assert [g[0].tokens for g in greedy] == [b[0].tokens for b in beam]


@pytest.mark.parametrize("beam_size", [2, 4, 8])
def test_hypotheses_are_unique_and_fill_the_beam(kind, beam_size):
    model = TinyTransducer(kind, vocab=4, seed=3)
    encoder_out, lens = random_batch([25, 14], seed=3)
    config = SearchConfig(
        "modified_beam_search", beam_size=beam_size, nbest=beam_size, length_norm=False
    )
    for hypotheses in search(model, encoder_out, lens, config):
        sequences = {tuple(h.tokens) for h in hypotheses}
        assert len(sequences) == len(hypotheses) == beam_size


@pytest.mark.parametrize("seed", range(3))
def test_scores_of_a_narrow_beam(kind, seed):
    """A score holds at least the alignment it comes with and at most all alignments of its
    sequence, each computed by a predictor that reads the sequence from the start."""
    model = TinyTransducer(kind, vocab=3, seed=seed)
    encoder_out, lens = random_batch([7], seed=seed)
    alignments = enumerate_alignments(model, encoder_out[0])
    totals = sequence_scores(alignments)
    config = SearchConfig("modified_beam_search", beam_size=3, nbest=3)
    for h in search(model, encoder_out, lens, config)[0]:
        path = [0] * 7
        for token, frame in zip(h.tokens, h.frames):
            path[frame] = token
        assert alignments[tuple(path)] - 1e-4 <= h.score
        assert h.score <= totals[tuple(h.tokens)] + 1e-4


@pytest.mark.parametrize("beam_size", [1, 2, 5])
@pytest.mark.parametrize("length_norm", [False, True])
def test_silence_gives_the_empty_hypothesis(kind, beam_size, length_norm):
    model = TinyTransducer(kind, blank_bias=1e4)
    encoder_out, lens = random_batch([8, 0, 3])
    config = SearchConfig(
        "modified_beam_search", beam_size=beam_size, length_norm=length_norm
    )
    for hypotheses in search(model, encoder_out, lens, config):
        assert hypotheses[0].tokens == []
        assert hypotheses[0].score == pytest.approx(0.0)


def test_length_norm_ranks_by_score_per_token(kind):
    model = TinyTransducer(kind, vocab=3, seed=1)
    encoder_out, lens = random_batch([4], seed=2)
    plain = SearchConfig(
        "modified_beam_search", beam_size=64, nbest=64, length_norm=False
    )
    normed = SearchConfig(
        "modified_beam_search", beam_size=64, nbest=64, length_norm=True
    )
    by_score = search(model, encoder_out, lens, plain)[0]
    by_norm = search(model, encoder_out, lens, normed)[0]
    keys = [h.score / (len(h.tokens) + 1) for h in by_norm]
    assert keys == sorted(keys, reverse=True)
    assert [h.tokens for h in by_score] != [h.tokens for h in by_norm]
    assert any(h.tokens == [] for h in by_norm)


def test_never_blank_joiner_terminates(kind):
    model = TinyTransducer(kind, blank_bias=-1e4)
    encoder_out, lens = random_batch([5, 3])
    results = search(model, encoder_out, lens, BEAM)
    assert [len(r[0].tokens) for r in results] == [5, 3]


def test_predictor_runs_only_for_new_hypotheses(kind):
    model = TinyTransducer(kind, blank_bias=1e4)
    encoder_out, lens = random_batch([50])
    model.predictor.steps = 0
    search(model, encoder_out, lens, SearchConfig("modified_beam_search", beam_size=1))
    assert model.predictor.steps == 1


def test_scorer_is_added_to_symbols_only(kind):
    """A bigram model as scorer: scores are those of enumeration plus the bigrams."""
    bigram = torch.randn(3, 3, generator=torch.Generator().manual_seed(0))

    class Bigram:
        def init_state(self, batch_size, device):
            return [torch.zeros(batch_size, 1, device=device)]

        def step(self, tokens, state):
            return bigram[tokens], state

    model = TinyTransducer(kind, vocab=3, seed=6)
    encoder_out, lens = random_batch([4, 3], seed=6)
    config = SearchConfig(
        "modified_beam_search", beam_size=64, nbest=64, length_norm=False
    )
    results = modified_beam_search(model, encoder_out, lens, config, [Bigram()])
    for b, length in enumerate([4, 3]):
        exact = sequence_scores(enumerate_alignments(model, encoder_out[b, :length]))
        for h in results[b]:
            pairs = zip([0, *h.tokens], h.tokens)
            extra = sum(float(bigram[x, y]) for x, y in pairs)
            expected = exact[tuple(h.tokens)] + extra
            assert h.score == pytest.approx(expected, abs=1e-4)


def test_long_speech_keeps_its_digits():
    """float32 sums would lose the difference between hypotheses after some 1e4 frames."""
    model = TinyTransducer("stateless", vocab=4, seed=3)
    encoder_out, lens = random_batch([3000], seed=3)
    greedy = search(model, encoder_out, lens, SearchConfig())[0][0]
    beam = search(model, encoder_out, lens, SearchConfig("modified_beam_search", 1, 1))
    assert math.isclose(greedy.score, beam[0][0].score, rel_tol=1e-6)

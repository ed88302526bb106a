"""What holds for every search."""

import pytest
import torch
from decoding_helpers import TinyTransducer, random_batch

from icefall_attn.decoding import SEARCHES, SearchConfig, search
from icefall_attn.errors import UserError

LENGTHS = [12, 30, 1, 0, 21, 30]


def _config(method: str) -> SearchConfig:
    if method.startswith("fast_beam_search"):
        pytest.importorskip("k2")
    return SearchConfig(method, max_symbols_per_frame=2)


@pytest.mark.parametrize("method", sorted(SEARCHES))
@pytest.mark.parametrize("seed", range(2))
def test_batch_equals_single(kind, method, seed):
    """Also: what lies past an utterance's end (here NaN) is never looked at."""
    model = TinyTransducer(kind, vocab=6, seed=seed)
    if method == "fast_beam_search_nbest":
        # Sampling is only the same where a few paths are likely.
        model.joiner.out.weight.data *= 6
    encoder_out, lens = random_batch(LENGTHS, seed=seed)
    together = search(model, encoder_out, lens, _config(method))
    for b, length in enumerate(LENGTHS):
        alone = search(
            model, encoder_out[b : b + 1, :length], lens[b : b + 1], _config(method)
        )[0]
        assert [h.tokens for h in together[b]] == [h.tokens for h in alone]
        assert [h.frames for h in together[b]] == [h.frames for h in alone]
        for x, y in zip(together[b], alone):
            assert x.score == pytest.approx(y.score, abs=1e-3)


@pytest.mark.parametrize("method", sorted(SEARCHES))
def test_never_outputs_blank(kind, method):
    model = TinyTransducer(kind, vocab=6)
    encoder_out, lens = random_batch(LENGTHS)
    for hypotheses in search(model, encoder_out, lens, _config(method)):
        assert 1 <= len(hypotheses) <= 4
        for h in hypotheses:
            assert model.blank_id not in h.tokens
            assert len(h.tokens) == len(h.frames)


@pytest.mark.parametrize("method", sorted(SEARCHES))
def test_only_empty_utterances(kind, method):
    model = TinyTransducer(kind)
    results = search(model, torch.zeros(2, 0, 6), torch.tensor([0, 0]), _config(method))
    assert [(r[0].tokens, r[0].score) for r in results] == [([], 0.0), ([], 0.0)]


@pytest.mark.parametrize("method", sorted(SEARCHES))
def test_no_utterance(method):
    model = TinyTransducer("lstm")
    lengths = torch.zeros(0, dtype=torch.int64)
    assert search(model, torch.zeros(0, 3, 6), lengths, _config(method)) == []


@pytest.mark.parametrize("method", sorted(SEARCHES))
def test_nbest_one(kind, method):
    if method.startswith("fast_beam_search"):
        pytest.importorskip("k2")
    model = TinyTransducer(kind)
    encoder_out, lens = random_batch(LENGTHS)
    config = SearchConfig(method, nbest=1)
    assert all(len(r) == 1 for r in search(model, encoder_out, lens, config))


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(method="magic"), "unknown search.method 'magic'"),
        (dict(beam_size=0), "search.beam_size must be at least 1, not 0"),
        (dict(max_symbols_per_frame=-1), "max_symbols_per_frame .* not -1"),
        (dict(fast_beam=0.0), "search.fast_beam must be greater than 0"),
        (dict(history=-2), "search.history .* not -2"),
        (dict(num_paths=0), "search.num_paths must be at least 1, not 0"),
        (dict(nbest_scale=0.0), "search.nbest_scale must be greater than 0, not 0"),
        (dict(ngram_lm_scale=-0.1), "search.ngram_lm_scale must be 0 or more"),
    ],
)
def test_bad_options(options, message):
    model = TinyTransducer("lstm")
    encoder_out, lens = random_batch([3])
    with pytest.raises(UserError, match=message):
        search(model, encoder_out, lens, SearchConfig(**options))

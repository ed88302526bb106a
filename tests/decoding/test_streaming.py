"""Streams find what whole utterances find, with a real model of every context."""

import pytest
import torch

from icefall_attn.attention.contexts import Causal, Chunk, ContextConfig, Csa, Dcn, Rsa
from icefall_attn.decoding import SearchConfig, recognize
from icefall_attn.decoding.streaming import recognize_streams
from icefall_attn.encoder.conformer import ConformerConfig
from icefall_attn.errors import UserError
from icefall_attn.transducer.model import Transducer, TransducerConfig
from icefall_attn.transducer.predictor import PredictorConfig

CONTEXTS = {
    "causal": ContextConfig("causal", causal=Causal()),
    "rsa": ContextConfig("rsa", rsa=Rsa(look_ahead=1)),
    "chunk": ContextConfig("chunk", chunk=Chunk(chunk_size=4)),
    "csa": ContextConfig("csa", csa=Csa(hop=3, overlap=2)),
    "dcn": ContextConfig("dcn", dcn=Dcn(look_ahead=3)),
}
LENGTHS = [120, 37, 6, 203, 80, 0]


def make_model(context, norm="running", feature_dim=8):
    torch.manual_seed(0)
    encoder = ConformerConfig(
        feature_dim=feature_dim, dim=16, heads=2, num_layers=2, feed_forward_dim=32, kernel_size=5,
        subsampling_channels=4, context=context,
    )  # fmt: skip
    predictor = PredictorConfig(dim=16)
    config = TransducerConfig(encoder, predictor, 16, norm, vocab_size=7)
    model = Transducer(config).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
        model.joiner.output.bias[0] += 1.0
    return model


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("method", ["greedy_search", "modified_beam_search"])
def test_any_piece(context, method):
    model = make_model(CONTEXTS[context])
    features = torch.randn(len(LENGTHS), max(LENGTHS), 8, dtype=torch.float64) * 2
    lengths = torch.tensor(LENGTHS)
    config = SearchConfig(method, beam_size=3)
    expected = recognize(model, features, lengths, config)
    assert sum(len(nbest[0].tokens) for nbest in expected) > 20
    for piece in (1, 7, 32, 1000):
        found = recognize_streams(model, features, lengths, config, piece)
        for some, others in zip(found, expected):
            assert [(h.tokens, h.frames) for h in some] == [
                (h.tokens, h.frames) for h in others
            ]
            scores = [h.score for h in others]
            assert [h.score for h in some] == pytest.approx(scores, abs=1e-4)


def test_the_end_needs_no_silence():
    """An utterance that is cut off in the middle of speech is flushed: nothing is left in the encoder."""
    model = make_model(CONTEXTS["dcn"])
    features = torch.randn(1, 100, 8, dtype=torch.float64) * 2
    config = SearchConfig("greedy_search")
    for length in range(60, 100, 3):
        lengths = torch.tensor([length])
        (found,) = recognize_streams(model, features, lengths, config, 8)
        (expected,) = recognize(model, features[:, :length], lengths, config)
        assert found[0].tokens == expected[0].tokens


def test_what_needs_whole_utterances_is_refused():
    model = make_model(ContextConfig("full"), "utterance")
    features, lengths = torch.zeros(1, 20, 8).double(), torch.tensor([20])
    with pytest.raises(UserError, match="context.kind=full needs whole utterances"):
        recognize_streams(model, features, lengths, SearchConfig(), 8)
    graph = SearchConfig("fast_beam_search")
    with pytest.raises(UserError, match="fast_beam_search needs whole utterances"):
        recognize_streams(make_model(CONTEXTS["dcn"]), features, lengths, graph, 8)

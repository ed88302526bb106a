"""The latency that is told is the one that streams have."""

import pytest
import torch
from encoder.small import make_encoder

from icefall_attn.attention.contexts import Chunk, ContextConfig, Csa, Dcn, Rsa
from icefall_attn.encoder.conformer import ConformerConfig
from icefall_attn.encoder.latency import latency, wait

CONTEXTS = {
    "causal": ContextConfig("causal"),
    "rsa": ContextConfig("rsa", rsa=Rsa(look_ahead=1)),
    "chunk": ContextConfig("chunk", chunk=Chunk(chunk_size=4)),
    "csa": ContextConfig("csa", csa=Csa(hop=4, overlap=2)),
    "dcn": ContextConfig("dcn", dcn=Dcn(look_ahead=6)),
}


@torch.no_grad()
@pytest.mark.parametrize("name", list(CONTEXTS))
def test_frames_come_out_when_they_should(name):
    """Input frames of 10 ms one by one; output t has its middle at input 4t + 3."""
    encoder = make_encoder("full", CONTEXTS[name], layers=3)
    state, delays = encoder.init_stream(1), []
    for now in range(20 * 4 * 4):
        piece = torch.zeros(1, 1, 8, dtype=torch.float64)
        _, ready, state = encoder.step(
            piece, torch.tensor([1]), state, torch.tensor([False])
        )
        delays += [
            10.0 * (now - (4 * t + 3)) for t in range(len(delays), len(delays) + ready)
        ]
    delays = delays[: len(delays) // 4 * 4]
    assert delays == [wait(encoder.config, t) for t in range(len(delays))]
    told = latency(encoder.config)
    assert told.front_end == 30.0
    assert (min(delays), max(delays)) == (told.least, told.most)
    assert sum(delays) / len(delays) == told.mean


def test_published_examples():
    """DCN, look-ahead 6: 270 ms; RSA of 12 layers, look-ahead 1 and 3: 510 and 1470 ms."""
    for context, expected in (
        (ContextConfig("dcn", dcn=Dcn(look_ahead=6)), 270.0),
        (ContextConfig("rsa", rsa=Rsa(look_ahead=1)), 510.0),
        (ContextConfig("rsa", rsa=Rsa(look_ahead=3)), 1470.0),
        (ContextConfig("full"), float("inf")),
    ):
        assert latency(ConformerConfig(num_layers=12, context=context)).most == expected

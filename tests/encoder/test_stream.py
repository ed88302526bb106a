"""Step by step the encoder gives what the masked pass gives."""

import pytest
import torch

from icefall_attn.attention import MECHANISMS, AttentionConfig
from icefall_attn.attention.contexts import Causal, Chunk, ContextConfig, Csa, Dcn, Rsa
from icefall_attn.encoder.conformer import Conformer, ConformerConfig

CONTEXTS = {
    "causal": ContextConfig("causal"),
    "causal-back": ContextConfig("causal", causal=Causal(look_back=5)),
    "rsa": ContextConfig("rsa", rsa=Rsa(look_ahead=2)),
    "rsa-back": ContextConfig("rsa", rsa=Rsa(look_ahead=1, look_back=4)),
    "chunk": ContextConfig("chunk", chunk=Chunk(chunk_size=4)),
    "chunk-left": ContextConfig("chunk", chunk=Chunk(chunk_size=3, left_chunks=2)),
    "csa": ContextConfig("csa", csa=Csa(hop=3, overlap=2)),
    "csa-wide": ContextConfig("csa", csa=Csa(hop=2, overlap=5, look_back=4)),
    "dcn": ContextConfig("dcn", dcn=Dcn(look_ahead=3)),
    "dcn-inclusive": ContextConfig(
        "dcn", dcn=Dcn(look_ahead=2, look_back=6, boundary="inclusive")
    ),
    "dcn-0": ContextConfig("dcn", dcn=Dcn(look_ahead=0)),
}
STREAMABLE = [kind for kind in MECHANISMS if kind != "prob_sparse"]


def make_encoder(kind, context, layers=2, dtype=torch.float64, **options):
    torch.manual_seed(0)
    attention = AttentionConfig(kind=kind)
    if hasattr(getattr(attention, kind, None), "period"):
        getattr(attention, kind).period = 200
    config = ConformerConfig(
        feature_dim=8, dim=8, heads=2, num_layers=layers, feed_forward_dim=16, kernel_size=5,
        subsampling_channels=4, attention=attention, context=CONTEXTS[context], **options,
    )  # fmt: skip
    encoder = Conformer(config).to(dtype).eval()
    with torch.no_grad():
        for parameter in encoder.parameters():  # norms that differ between streams
            parameter.add_(0.3 * torch.randn_like(parameter))
    return encoder


def run(encoder, x, lengths, sizes):
    """Streams that get pieces of their own sizes, ``sizes(row, step)``."""
    state = encoder.init_stream(len(lengths))
    at = [0] * len(lengths)
    outs = [[] for _ in lengths]
    over = [False] * len(lengths)
    step = 0
    while not all(over):
        counts = [min(sizes(b, step), n - at[b]) for b, n in enumerate(lengths)]
        piece = x.new_full((len(lengths), max(max(counts), 1), x.size(2)), float("nan"))
        for b, count in enumerate(counts):
            piece[b, :count] = x[b, at[b] : at[b] + count]
            at[b] += count
        final = [at[b] == n and not over[b] for b, n in enumerate(lengths)]
        out, ready, state = encoder.step(
            piece, torch.tensor(counts), state, torch.tensor(final)
        )
        for b, count in enumerate(ready.tolist()):
            if not over[b]:
                outs[b].append(out[b, :count])
        over = [a or b for a, b in zip(over, final)]
        step += 1
    return [torch.cat(rows) for rows in outs]


@pytest.mark.parametrize("context", list(CONTEXTS))
@pytest.mark.parametrize("kind", STREAMABLE)
def test_steps_are_the_masked_pass(kind, context):
    encoder = make_encoder(kind, context)
    lengths = [131, 60, 7, 11, 25, 3]
    x = torch.randn(len(lengths), 131, 8, dtype=torch.float64)
    generator = torch.Generator().manual_seed(1)
    plans = {
        "1": lambda row, step: 1,
        "7": lambda row, step: 7,
        "whole": lambda row, step: 200,
        "random": lambda row, step: int(torch.randint(0, 30, (), generator=generator)),
    }
    with torch.no_grad():
        expected, frames = encoder(x, torch.tensor(lengths))
        for name, sizes in plans.items():
            outs = run(encoder, x, lengths, sizes)
            for row, out in enumerate(outs):
                assert len(out) == frames[row], name
                torch.testing.assert_close(
                    out, expected[row, : len(out)], rtol=0, atol=1e-12
                )

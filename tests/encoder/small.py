"""Small encoders in every context, for the tests of this folder."""

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
    "dcn-back": ContextConfig("dcn", dcn=Dcn(2, look_back=6, boundary="inclusive")),
    "dcn-0": ContextConfig("dcn", dcn=Dcn(look_ahead=0)),
}
STREAMABLE = [kind for kind in MECHANISMS if kind != "prob_sparse"]


def make_encoder(kind, context, layers=2, dtype=torch.float64, **options):
    """An encoder in evaluation mode whose weights, those of norms too, are random."""
    torch.manual_seed(0)
    attention = AttentionConfig(kind=kind)
    if hasattr(getattr(attention, kind, None), "period"):
        getattr(attention, kind).period = 200
    if isinstance(context, str):
        context = CONTEXTS[context]
    values = dict(
        feature_dim=8, dim=8, heads=2, num_layers=layers, feed_forward_dim=16, kernel_size=5,
        subsampling_channels=4, attention=attention, context=context,
    )  # fmt: skip
    encoder = Conformer(ConformerConfig(**{**values, **options})).to(dtype).eval()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return encoder

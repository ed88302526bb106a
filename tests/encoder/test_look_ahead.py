"""Which input frames a frame depends on, after several blocks, and how the contexts meet."""

import pytest
import torch
from encoder.small import STREAMABLE, make_encoder

from icefall_attn.attention import dual
from icefall_attn.attention.contexts import Chunk, ContextConfig, Csa, Dcn, Rsa
from icefall_attn.nn.lengths import valid_mask

FRAMES, LAYERS = 30, 4


def through_blocks(encoder, x):
    """What comes out of the blocks for their input ``(1, T', D)``, by stream."""
    view = encoder.view
    seen, valid = view.enter(x, valid_mask(torch.tensor([x.size(1)]), x.size(1)))
    context = view.context(valid, x.dtype, encoder.shared(x.size(1)))
    for block in encoder.blocks:
        seen = block(seen, context)
    if encoder.config.context.kind == "dcn":
        return seen
    return view.leave(seen, x.size(1))


@torch.no_grad()
def reached(encoder, changed):
    """By stream, the frames that a random change of one frame changes."""
    torch.manual_seed(1)
    x = torch.randn(1, FRAMES, 8, dtype=torch.float64)
    other = x.clone()
    other[0, changed] += torch.randn(8, dtype=torch.float64)
    moved = through_blocks(encoder, other) - through_blocks(encoder, x)
    return [(row.abs().amax(dim=1) > 0).nonzero().flatten().tolist() for row in moved]


def since(first):
    return list(range(max(first, 0), FRAMES))


@pytest.mark.parametrize("boundary", ["strict", "inclusive"])
@pytest.mark.parametrize("ahead", [0, 1, 3])
@pytest.mark.parametrize("kind", STREAMABLE)
def test_dcn_looks_ahead_as_far_whatever_its_depth(kind, ahead, boundary):
    encoder = make_encoder(
        kind, ContextConfig("dcn", dcn=Dcn(ahead, 0, boundary)), LAYERS
    )
    for frame in (7, 16):
        assert reached(encoder, frame) == [since(frame), since(frame - ahead)]


@pytest.mark.parametrize("kind", STREAMABLE)
def test_the_look_ahead_of_others(kind):
    rsa = make_encoder(kind, ContextConfig("rsa", rsa=Rsa(look_ahead=2)), LAYERS)
    assert reached(rsa, 16) == [since(16 - 2 * LAYERS)]
    causal = make_encoder(kind, "causal", LAYERS)
    assert reached(causal, 16) == [since(16)]
    chunk = make_encoder(kind, ContextConfig("chunk", chunk=Chunk(5)), LAYERS)
    assert reached(chunk, 17) == [since(15)]
    csa = make_encoder(kind, ContextConfig("csa", csa=Csa(hop=4, overlap=3)), LAYERS)
    # the chunk that owns 12 to 15 has copies of 16 to 18
    assert reached(csa, 19) == [since(16)]
    assert reached(csa, 16) == [since(12)]


@pytest.mark.parametrize(
    "context, back",
    [
        (ContextConfig("rsa", rsa=Rsa(1, look_back=3)), 3),
        (ContextConfig("dcn", dcn=Dcn(2, look_back=3)), 3),
    ],
)
def test_look_back_is_a_bound_of_each_layer(context, back):
    encoder = make_encoder("rel_pos", context, LAYERS, convolution=False)
    for frames in reached(encoder, 10):
        assert frames[-1] == 10 + LAYERS * back


def test_a_wrong_mask_is_seen(monkeypatch):
    """One frame too many for the causal stream: it looks ahead, but only from the second block on."""

    def off_by_one(limits, strict, stream, query, key):
        newest = query if stream == 1 else query - limits.ahead + 1
        return key <= newest

    monkeypatch.setattr(dual, "sees_non_causal", off_by_one)
    context = ContextConfig("dcn", dcn=Dcn(look_ahead=3))
    assert reached(make_encoder("full", context, 1), 16)[0] == since(16)
    causal, non_causal = reached(make_encoder("full", context, LAYERS), 16)
    assert causal[0] < 16 and non_causal[0] < 13


def tied(encoder):
    """Both streams get the causal one's norms."""
    for name, module in encoder.named_modules():
        if hasattr(module, "non_causal"):
            module.non_causal.load_state_dict(module.causal.state_dict())
    return encoder


def weights_of_stream(encoder, stream):
    """DCN's weights with the norms of one stream, by the names of an encoder of one stream."""
    other = "non_causal" if stream == "causal" else "causal"
    return {
        name.replace(f".{stream}.", "."): value
        for name, value in encoder.state_dict().items()
        if f".{other}." not in name
    }


@torch.no_grad()
@pytest.mark.parametrize("kind", ["full", "rel_pos", "lmla"])
def test_dcn_meets_causal_self_attention(kind):
    """With a look-ahead of the whole utterance in its causal stream, with none in the other."""
    x = torch.randn(1, FRAMES, 8, dtype=torch.float64)
    for ahead, stream in ((FRAMES, "causal"), (0, "non_causal")):
        both = make_encoder(
            kind, ContextConfig("dcn", dcn=Dcn(look_ahead=ahead)), LAYERS
        )
        one = make_encoder(kind, "causal", LAYERS)
        one.load_state_dict(weights_of_stream(both, stream))
        out = through_blocks(both, x)[0 if stream == "causal" else 1]
        torch.testing.assert_close(out, through_blocks(one, x)[0])
    both = tied(both)
    causal, non_causal = through_blocks(both, x)
    torch.testing.assert_close(causal, non_causal)


@torch.no_grad()
def test_one_block_of_dcn_is_restricted_self_attention():
    both = tied(make_encoder("rel_pos", ContextConfig("dcn", dcn=Dcn(look_ahead=3)), 1))
    one = make_encoder("rel_pos", ContextConfig("rsa", rsa=Rsa(look_ahead=3)), 1)
    one.load_state_dict(weights_of_stream(both, "causal"))
    x = torch.randn(1, FRAMES, 8, dtype=torch.float64)
    torch.testing.assert_close(through_blocks(both, x)[1], through_blocks(one, x)[0])


@torch.no_grad()
def test_csa_without_overlap_is_chunks():
    chunk = make_encoder("rel_pos", ContextConfig("chunk", chunk=Chunk(4)), LAYERS)
    csa = make_encoder("rel_pos", ContextConfig("csa", csa=Csa(4, 0)), LAYERS)
    csa.load_state_dict(chunk.state_dict())
    x = torch.randn(1, FRAMES, 8, dtype=torch.float64)
    torch.testing.assert_close(through_blocks(csa, x), through_blocks(chunk, x))


def test_the_causal_stream_learns_from_the_other():
    """Valid frames alone count; what only the non-causal stream has gets no gradient."""
    encoder = make_encoder("rel_pos", "dcn").train()
    for module in encoder.modules():
        module.active = False  # dropout
    lengths = torch.tensor([60, 35])
    x = torch.randn(2, 70, 8, dtype=torch.float64)
    x[0, 60:], x[1, 35:] = 1e3, float("nan")
    _, frames, distance = encoder.layers(x, lengths, [])
    for row, length in enumerate(lengths.tolist()):
        alone = encoder.layers(x[row : row + 1, :length], lengths[row : row + 1], [])[2]
        torch.testing.assert_close(distance[row], alone[0])
    distance.sum().backward()
    last = encoder.blocks[-1].norm
    assert last.non_causal.weight.grad is None or not last.non_causal.weight.grad.any()
    assert last.causal.weight.grad.abs().sum() > 0
    seen, valid = torch.randn(4, 5, 8), torch.ones(4, 5, dtype=torch.bool)
    valid[1::2, 3:] = False
    expected = (seen[:2] - seen[2:]).pow(2).mean(dim=2)
    expected = torch.stack((expected[0].sum(), expected[1, :3].sum()))
    torch.testing.assert_close(encoder.view.distance(seen, valid), expected)
    assert not encoder.view.distance(torch.cat((seen[:2], seen[:2])), valid).any()
    encoder.eval()
    assert encoder.layers(x, lengths, [])[2] is None

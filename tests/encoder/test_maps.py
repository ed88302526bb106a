"""Attention maps of every mechanism in every context."""

import pytest
import torch
from encoder.small import CONTEXTS, make_encoder

from icefall_attn.attention import MECHANISMS
from icefall_attn.attention.contexts import ContextConfig, sees
from icefall_attn.attention.masking import merge_heads, split_heads
from icefall_attn.encoder.maps import attention_maps
from icefall_attn.nn.normalize import PerStream

ALL = {"full": ContextConfig("full"), **CONTEXTS}
CASES = [
    (kind, context)
    for kind in MECHANISMS
    for context in ALL
    if kind != "prob_sparse" or context == "full"
]
every_case = pytest.mark.parametrize("kind, context", CASES)


def make(kind, context, **options):
    encoder = make_encoder(kind, ALL[context], **options)
    x = torch.randn(3, 70, 8, dtype=torch.float64)
    return encoder, x, torch.tensor([70, 31, 50])


@every_case
def test_values_by_the_map_are_what_attention_gives(kind, context):
    """In the first block, where all copies of a frame are equal; both streams of ``dcn`` are made so."""
    encoder, x, lengths = make(kind, context)
    block = encoder.blocks[0]
    for norms in (block.norm_in, block.norm_attention):
        if isinstance(norms, PerStream):
            norms.causal = norms.non_causal
    attention, seen = block.attention, {}
    hooks = [
        attention.register_forward_pre_hook(lambda _, call: seen.update(x=call[0])),
        attention.register_forward_hook(lambda *call: seen.update(out=call[2])),
    ]
    frames = encoder(x, lengths)[0].size(1)
    for hook in hooks:
        hook.remove()
    first = attention_maps(encoder, x, lengths)[0]
    values = encoder.view.leave(attention.value(seen["x"]), frames)
    values = split_heads(values, attention.heads)
    expected = attention.out(merge_heads(torch.matmul(first, values)))
    out = encoder.view.leave(seen["out"], frames)
    torch.testing.assert_close(out[0], expected[0])


@every_case
def test_each_frame_gives_all_its_weight_to_what_it_sees(kind, context):
    encoder, x, lengths = make(kind, context)
    maps = attention_maps(encoder, x, lengths)
    assert len(maps) == len(encoder.blocks)
    frames = torch.arange(maps[0].size(2))
    window = ALL[context].chosen.window()
    visible = sees(window, frames[:, None], frames)
    for weights in maps:
        assert weights.shape == (3, 2, len(frames), len(frames))
        for row, length in zip(weights, encoder(x, lengths)[1].tolist()):
            row, seen = row[:, :length], visible[:length].clone()
            seen[:, length:] = False
            assert not row[:, ~seen].any() and row[:, seen].any()
            sums = row.sum(dim=2)
            if kind == "cosformer":  # ReLU may leave a query or all keys nothing
                sums = torch.where(sums == 0, torch.ones_like(sums), sums)
            torch.testing.assert_close(sums, torch.ones_like(sums))


@every_case
def test_looking_changes_nothing(kind, context):
    encoder, x, lengths = make(kind, context)
    before, names = encoder(x, lengths)[0], list(encoder.state_dict())
    attention_maps(encoder, x, lengths)
    assert torch.equal(encoder(x, lengths)[0], before)
    assert list(encoder.state_dict()) == names
    for block in encoder.blocks:
        assert not block.attention._forward_pre_hooks


def test_a_lazy_query_takes_its_own_value_alone():
    encoder, x, lengths = make("prob_sparse", "full")
    weights = attention_maps(encoder, x, lengths)[0][0]
    lazy = weights.diagonal(dim1=1, dim2=2) == 1
    frames = weights.size(1)
    assert lazy.sum(dim=1).tolist() == 2 * [frames - -(-frames // 2)]

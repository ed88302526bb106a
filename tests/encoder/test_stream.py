"""Step by step the encoder gives what the masked pass gives."""

import pytest
import torch
from encoder.small import CONTEXTS, STREAMABLE, make_encoder

from icefall_attn.attention.contexts import ContextConfig
from icefall_attn.encoder import stream_layers
from icefall_attn.encoder.stream import each_tensor, select, stack_states, state_bytes
from icefall_attn.errors import UserError


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


PLANS = {
    "1": lambda row, step: 1,
    "2": lambda row, step: 2,
    "3": lambda row, step: 3,
    "7": lambda row, step: 7,
    "whole": lambda row, step: 1000,
    "own": lambda row, step: (row * 5 + step * 11) % 30,
}


def check(encoder, lengths, plans, tolerance=1e-12):
    """All plans of pieces against the masked pass."""
    dtype = next(encoder.parameters()).dtype
    torch.manual_seed(2)
    x = torch.randn(len(lengths), max(lengths), 8, dtype=dtype)
    with torch.no_grad():
        expected, frames = encoder(x, torch.tensor(lengths))
        for plan in plans:
            outs = run(encoder, x, lengths, PLANS[plan])
            for row, out in enumerate(outs):
                assert len(out) == frames[row], plan
                torch.testing.assert_close(
                    out, expected[row, : len(out)], rtol=0, atol=tolerance
                )


@pytest.mark.parametrize("context", list(CONTEXTS))
@pytest.mark.parametrize("kind", STREAMABLE)
def test_steps_are_the_masked_pass(kind, context):
    """Streams of 0, 1, look-ahead, look-ahead + 1 and many frames side by side."""
    encoder = make_encoder(kind, context)
    check(encoder, [131, 60, 7, 11, 15, 19, 3], ["7", "whole", "own"])


@pytest.mark.parametrize("context", list(CONTEXTS))
def test_pieces_of_any_size(context):
    check(make_encoder("rel_pos", context), [61, 30], list(PLANS))


@pytest.mark.parametrize("context", ["rsa", "chunk", "csa", "dcn"])
@pytest.mark.parametrize("layers", [1, 2, 3, 4])
def test_at_every_layer(context, layers):
    encoder = make_encoder("rel_pos", context, 4)
    encoder.blocks = encoder.blocks[:layers]
    check(encoder, [90, 33], ["7"])


@pytest.mark.parametrize("context", list(CONTEXTS))
@pytest.mark.parametrize("kind", ["full", "rel_pos", "lmla", "cosformer"])
def test_in_single_precision(kind, context):
    encoder = make_encoder(kind, context, dtype=torch.float32)
    check(encoder, [150, 40], ["7"], 1e-5)


@pytest.mark.parametrize("context", ["rsa", "csa", "dcn"])
@pytest.mark.parametrize(
    "options",
    [
        {"convolution": False},
        {"conv_norm": "batch"},
        {"feed_forward": "glu", "input_positions": "absolute"},
    ],
)
def test_other_blocks(context, options):
    encoder = make_encoder("rel_pos", context, **options)
    for module in encoder.modules():
        if hasattr(module, "running_mean"):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2.0)
    check(encoder, [70, 22], ["7"])


@pytest.mark.parametrize("normalizer", ["kernel", "reweighted"])
@pytest.mark.parametrize("context", ["causal", "rsa", "dcn"])
def test_normalisers_of_linear_attention(context, normalizer):
    encoder = make_encoder("cosformer", context)
    for block in encoder.blocks:
        block.attention.reweighted = normalizer == "reweighted"
    check(encoder, [70, 22], ["7"])


@pytest.mark.parametrize("context", ["rsa-back", "chunk-left", "csa-wide", "dcn-back"])
def test_bounded_contexts_keep_a_bounded_state(context):
    encoder = make_encoder("rel_pos", context)
    assert len({size for size in sizes_of_states(encoder, 300)}) == 1


@pytest.mark.parametrize("context", ["causal", "rsa", "chunk", "csa", "dcn"])
def test_linear_attention_keeps_a_bounded_state(context):
    assert len(set(sizes_of_states(make_encoder("lmla", context), 300))) == 1
    assert len(set(sizes_of_states(make_encoder("rel_pos", context), 300))) > 1


def test_dcn_keeps_its_causal_keys_for_the_look_ahead():
    encoder = make_encoder("rel_pos", "dcn")
    state = encoder.init_stream(1)
    _, _, state = encoder.step(
        torch.randn(1, 100, 8, dtype=torch.float64), torch.tensor([100]), state,
        torch.tensor([False]),
    )  # fmt: skip
    assert state.layers[0].own_key.size(1) == 3
    assert state.layers[0].key.size(1) == int(state.arrived) - 3


@torch.no_grad()
def sizes_of_states(encoder, frames):
    state, sizes = encoder.init_stream(2), []
    for piece in torch.randn(frames // 10, 2, 10, 8, dtype=torch.float64):
        _, _, state = encoder.step(
            piece, torch.tensor([10, 10]), state, torch.tensor([False, False])
        )
        sizes.append(state_bytes(state))
    return sizes


@torch.no_grad()
@pytest.mark.parametrize("context", list(CONTEXTS))
def test_streams_join_and_leave(context):
    """A stream goes on as if alone, beside others that have come to other places."""
    encoder = make_encoder("rel_pos", context)
    x = torch.randn(3, 80, 8, dtype=torch.float64)
    expected, _ = encoder(x, torch.tensor([80, 80, 80]))

    def step(state, rows, first, last, end=False):
        count = len(rows)
        out, ready, state = encoder.step(
            torch.stack([x[row, a:b] for row, a, b in zip(rows, first, last)]),
            torch.full((count,), last[0] - first[0]), state, torch.tensor([end] * count),
        )  # fmt: skip
        for row, piece, size in zip(rows, out, ready.tolist()):
            outs[row].append(piece[:size])
        return state

    outs = [[], [], []]
    state = step(encoder.init_stream(2), [0, 1], [0, 0], [30, 30])
    state = stack_states([state, encoder.init_stream(1)])
    state = each_tensor(torch.clone, state)
    state = step(state, [0, 1, 2], [30, 30, 0], [55, 55, 25])
    kept = select(state, torch.tensor([2, 0]))
    state = select(state, torch.tensor([1]))
    step(state, [1], [55], [80], end=True)
    kept = step(kept, [2, 0], [25, 55], [50, 80])
    step(select(kept, torch.tensor([1])), [0], [80], [80], end=True)
    step(select(kept, torch.tensor([0])), [2], [50], [80], end=True)
    for row in range(3):
        torch.testing.assert_close(
            torch.cat(outs[row]), expected[row], rtol=0, atol=1e-12
        )


@pytest.mark.parametrize("context, name", [("dcn", "sees_causal"), ("rsa", "sees")])
def test_a_wrong_mask_is_seen(context, name, monkeypatch):
    right = getattr(stream_layers, name)

    def wrong(*args):
        return right(*args[:-1], args[-1] + 1)

    monkeypatch.setattr(stream_layers, name, wrong)
    with pytest.raises(AssertionError, match="not close"):
        check(make_encoder("rel_pos", context), [90], ["7"])


def test_the_whole_utterance_cannot_be_a_stream():
    encoder = make_encoder("full", ContextConfig("full"))
    with pytest.raises(UserError, match="context.kind=full needs whole utterances"):
        encoder.init_stream(1)

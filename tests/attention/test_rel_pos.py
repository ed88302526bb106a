"""Signed distances: the table, the shift, published rows, and the symmetric legacy."""

import json
import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from icefall_attn.attention.contexts import CAUSAL, FULL, AttentionContext
from icefall_attn.attention.masking import visible_bias
from icefall_attn.attention.rel_pos import (
    RelPosAttention,
    RelPosScores,
    RelPosTable,
    rel_shift,
)
from icefall_attn.attention.speechbrain import from_speechbrain
from icefall_attn.errors import UserError

VECTORS = Path(__file__).parents[1] / "vectors"


def load(name):
    return json.loads((VECTORS / name).read_text())


@pytest.mark.parametrize("legacy", [False, True])
def test_table_rows(legacy):
    expected = load("relpos.json")["pe_T3_d4_legacy" if legacy else "pe_T3_d4_signed"]
    table = RelPosTable(4, legacy)(3)[0]
    torch.testing.assert_close(table, torch.tensor(expected), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("frames", range(1, 9))
def test_signed_table_has_odd_sines_and_even_cosines(frames):
    (table,) = RelPosTable(8)(frames)
    assert table.shape == (2 * frames - 1, 8)
    assert torch.equal(table[:, 0::2], -table.flip(0)[:, 0::2])
    assert torch.equal(table[:, 1::2], table.flip(0)[:, 1::2])
    (legacy,) = RelPosTable(8, legacy_symmetric=True)(frames)
    assert torch.equal(legacy, legacy.flip(0))
    assert torch.equal(legacy[:frames], table[:frames])  # the past never changed
    if frames > 1:
        assert not torch.equal(table, legacy)


@pytest.mark.parametrize("frames, dim", [(1, 8), (5, 16), (50, 64), (2000, 256)])
@pytest.mark.parametrize("legacy", [False, True])
def test_table_is_speechbrains_bit_for_bit(frames, dim, legacy):
    """Its order of operations: positions times frequencies, sine, cosine, flip, concatenation."""
    step = -math.log(10000.0) / dim
    frequencies = torch.exp(torch.arange(0, dim, 2, dtype=torch.float32) * step)
    angles = torch.arange(frames, dtype=torch.float32)[:, None] * frequencies
    past, future = torch.zeros(frames, dim), torch.zeros(frames, dim)
    past[:, 0::2], past[:, 1::2] = angles.sin(), angles.cos()
    future[:, 0::2] = angles.sin() if legacy else -angles.sin()
    future[:, 1::2] = angles.cos()
    expected = torch.cat((past.flip(0), future[1:]))
    assert torch.equal(RelPosTable(dim, legacy)(frames)[0], expected)


def test_half_precision_models_get_a_table_from_float32():
    module = RelPosTable(16)
    (exact,) = module(3000)
    assert torch.equal(module.to(torch.bfloat16)(3000)[0], exact)


def test_legacy_differs_in_the_future_alone():
    """Under a causal mask both tables give the same bits."""
    x = torch.randn(2, 9, 8)
    valid = torch.ones(2, 9, dtype=torch.bool)
    outs = {}
    for causal in (True, False):
        for legacy in (False, True):
            torch.manual_seed(0)
            config = RelPosAttention.Config(legacy_symmetric=legacy)
            module = RelPosAttention(8, 2, 0.0, config)
            shared = RelPosAttention.shared(8, config)(9)
            bias = visible_bias(valid, x.dtype, CAUSAL if causal else FULL)
            outs[causal, legacy] = module(x, AttentionContext(valid, bias, shared))
    assert torch.equal(outs[True, False], outs[True, True])
    assert not torch.allclose(outs[False, False], outs[False, True])


@pytest.mark.parametrize("legacy", [False, True])
def test_scores_by_distance_do_not_know_the_place(legacy):
    """The scores of frames stay when others are put before them."""
    placed, position = torch.randn(1, 2, 4, 4).double(), torch.nn.Linear(8, 8).double()

    def scores(before):
        frames = before + 4
        table = RelPosTable(8, legacy)(frames)[0].double()
        rows = position(table).view(-1, 2, 4).transpose(0, 1)
        query = torch.cat((torch.randn(1, 2, before, 4).double(), placed), dim=2)
        return rel_shift(query @ rows.transpose(1, 2), frames)[..., before:, before:]

    torch.testing.assert_close(scores(0), scores(5))


def test_fewer_queries_than_keys_take_the_last_rows_of_time():
    table, part = RelPosTable(8).rows(7, 7), RelPosTable(8).rows(3, 7)
    assert torch.equal(part, table[: 3 + 7 - 1])


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize(
    "q_len, k_len, lead", [(3, 7, 4), (3, 7, 2), (7, 3, 0), (2, 5, 9)]
)
def test_rows_of_any_queries_and_keys(q_len, k_len, lead, legacy):
    """Row p stands for the distance ``lead + q - 1 - p``; the old table knows no sign."""
    rows = RelPosTable(8, legacy).rows(q_len, k_len, lead)
    distance = lead + q_len - 1 - torch.arange(q_len + k_len - 1)
    distance = distance.abs() if legacy else distance
    angles = distance[:, None].double() * 10000.0 ** (-torch.arange(0, 8, 2) / 8)
    torch.testing.assert_close(rows[:, 0::2].double(), angles.sin(), rtol=0, atol=1e-5)
    torch.testing.assert_close(rows[:, 1::2].double(), angles.cos(), rtol=0, atol=1e-5)


def test_shift_meets_the_published_mapping():
    mapping = load("relpos.json")["mapping_klen5"]
    one_hot = (
        torch.eye(9).expand(5, 9, 9).permute(2, 0, 1)[None]
    )  # (1, row p, query, column)
    shifted = rel_shift(one_hot, 5)[0]
    for row, pairs in mapping.items():
        found = shifted[int(row)].nonzero().tolist()
        assert sorted(found) == sorted(pairs)


@pytest.mark.parametrize("q_len, k_len", [(1, 1), (2, 5), (5, 5), (3, 8), (8, 11)])
def test_fused_scores_equal_the_definition(q_len, k_len):
    heads, dim = 2, 3
    make = lambda *shape: torch.randn(*shape, dtype=torch.float64, requires_grad=True)
    content, placed = make(2, heads, q_len, dim), make(2, heads, q_len, dim)
    key, position = make(2, heads, k_len, dim), make(heads, q_len + k_len - 1, dim)
    rows = torch.tensor(
        [[q_len - 1 - i + j for j in range(k_len)] for i in range(q_len)]
    )
    naive = torch.einsum("bhid,bhjd->bhij", content, key)
    naive = naive + torch.einsum("bhid,hijd->bhij", placed, position[:, rows])
    inputs = (content, placed, key, position)
    fused = RelPosScores.apply(*inputs)
    torch.testing.assert_close(fused, naive)
    weight = torch.randn_like(naive)
    torch.testing.assert_close(
        torch.autograd.grad((fused * weight).sum(), inputs),
        torch.autograd.grad((naive * weight).sum(), inputs),
    )


def weights_of(module, x):
    """Attention weights of a module, seen from outside."""
    seen = []
    hook = module.weights_dropout.register_forward_pre_hook(
        lambda _, inputs: seen.append(inputs[0])
    )
    table = RelPosTable(x.size(2), module.legacy)(x.size(1))
    valid = torch.ones(x.shape[:2], dtype=torch.bool)
    module(x, AttentionContext(valid, None, table))
    hook.remove()
    return seen[0][0, 0]


@pytest.mark.parametrize("legacy", [False, True])
def test_attention_of_a_constant_sequence_is_the_published_one(legacy):
    frozen = load("relpos_pr3073_row.json")
    weights = {name: torch.tensor(value) for name, value in frozen["weights"].items()}
    config = RelPosAttention.Config(legacy_symmetric=legacy, scale="embed_dim")
    module = RelPosAttention(8, 1, 0.0, config).eval()
    module.legacy = legacy
    module.load_state_dict(from_speechbrain(weights, heads=1))
    row = weights_of(module, torch.ones(1, 6, 8))
    expected = torch.tensor(frozen["attn_legacy" if legacy else "attn_signed"])
    torch.testing.assert_close(row, expected, rtol=1e-5, atol=1e-6)
    symmetric = torch.allclose(row[3, 2], row[3, 4]) and torch.allclose(
        row[3, 1], row[3, 5]
    )
    assert symmetric == legacy


def speechbrains_state(dim, heads):
    shapes = {
        "in_proj_weight": (3 * dim, dim),
        "pos_bias_u": (dim // heads, heads),
        "pos_bias_v": (dim // heads, heads),
        "linear_pos.weight": (dim, dim),
        "out_proj.weight": (dim, dim),
        "out_proj.bias": (dim,),
        "value_bias_weight": (dim,),
    }
    return {name: torch.randn(shape) for name, shape in shapes.items()}


def speechbrains_output(state, x, table, heads, layout):
    """What its module computes, in its order of operations, written down from its description."""
    batch, frames, dim = x.shape
    width = dim // heads
    if layout == "interleaved":
        blocks = F.linear(x, state["in_proj_weight"]).view(batch, frames, heads, -1)
        query, key, value = blocks.chunk(3, dim=-1)
    else:
        query, key, value = (
            F.linear(x, part).view(batch, frames, heads, width)
            for part in state["in_proj_weight"].chunk(3)
        )
    value = value + state["value_bias_weight"].view(heads, width)
    position = F.linear(table, state["linear_pos.weight"]).view(-1, heads, width)
    biases = (state[f"pos_bias_{name}"].view(heads, width) for name in "uv")
    content, placed = ((query + b).transpose(1, 2) * (1 / dim**0.5) for b in biases)
    distances = placed @ position.permute(1, 2, 0)
    rows = [
        distances[..., i, frames - 1 - i : 2 * frames - 1 - i] for i in range(frames)
    ]
    scores = content @ key.permute(0, 2, 3, 1) + torch.stack(rows, dim=2)
    out = scores.softmax(dim=-1) @ value.transpose(1, 2)
    out = out.transpose(1, 2).reshape(batch, frames, dim)
    return F.linear(out, state["out_proj.weight"], state["out_proj.bias"])


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("layout", ["interleaved", "stacked"])
@pytest.mark.parametrize("dim, heads", [(8, 1), (8, 2), (64, 4), (144, 4)])
def test_speechbrains_weights_give_its_output(dim, heads, layout, legacy):
    """Bit for bit where products have the same shapes; to rounding where theirs are others."""
    torch.manual_seed(dim)
    state, frames = speechbrains_state(dim, heads), 5
    config = RelPosAttention.Config(legacy, scale="embed_dim")
    module = RelPosAttention(dim, heads, 0.0, config)
    module.load_state_dict(from_speechbrain(state, heads, layout))
    x, valid = torch.randn(1, frames, dim), torch.ones(1, frames, dtype=torch.bool)
    table = RelPosTable(dim, legacy)(frames)
    with torch.no_grad():
        out = module(x, AttentionContext(valid, None, table))
    expected = speechbrains_output(state, x, table[0], heads, layout)
    if layout == "stacked" and (dim, heads) == (8, 1):
        assert torch.equal(out, expected)
    error = (out - expected).abs().max() / expected.abs().max()
    assert error < 1e-5


def test_weights_that_are_not_speechbrains_are_refused():
    with pytest.raises(UserError, match="pos_bias_u is missing"):
        from_speechbrain({"in_proj_weight": torch.zeros(24, 8)}, 1)
    state = {
        "in_proj_weight": torch.zeros(24, 8),
        "pos_bias_u": torch.zeros(4, 2),
        "pos_bias_v": torch.zeros(4, 2),
        "linear_pos.weight": torch.zeros(8, 8),
        "out_proj.weight": torch.zeros(8, 8),
    }
    from_speechbrain(state, heads=2)
    refused = [(3, "3 heads do not divide"), (0, "0 heads"), (1, "pos_bias_u is")]
    for heads, message in refused + [(4, r"pos_bias_u is \(4, 2\), not \(2, 4\)")]:
        with pytest.raises(UserError, match=message):
            from_speechbrain(state, heads)
    with pytest.raises(UserError, match="layout 'chunked'"):
        from_speechbrain(state, 2, "chunked")
    with pytest.raises(UserError, match="in_proj_weight is"):
        from_speechbrain({**state, "in_proj_weight": torch.zeros(16, 8)}, 2)
    with pytest.raises(UserError, match="in_proj_bias is not one of its tensors"):
        from_speechbrain({**state, "in_proj_bias": torch.zeros(24)}, 2)
    with pytest.raises(UserError, match="out_proj.bias is"):
        from_speechbrain({**state, "out_proj.bias": torch.zeros(9)}, 2)


def test_scale_is_refused_by_name():
    with pytest.raises(ValueError, match="'sqrt'"):
        RelPosAttention.Config(scale="sqrt")


def test_long_tables_are_exact():
    (table,) = RelPosTable(4)(6000)
    distance = torch.arange(5999, -6000, -1, dtype=torch.float64)
    torch.testing.assert_close(
        table[:, 0].double(), torch.sin(distance), rtol=0, atol=1e-6
    )
    assert math.isclose(table[0, 1].item(), math.cos(5999.0), abs_tol=1e-6)


def test_parameters_have_the_names_that_checkpoints_know():
    names = set(RelPosAttention(8, 2, 0.0, RelPosAttention.Config()).state_dict())
    linear = {"query", "key", "value", "out"}
    assert names == {f"{n}.{p}" for n in linear for p in ("weight", "bias")} | {
        *("position.weight", "content_bias", "position_bias")
    }

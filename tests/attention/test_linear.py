"""Linear attention: both products, the published numbers, positions, lengths, signs."""

import json
import math
from pathlib import Path

import pytest
import torch

from icefall_attn.attention import MECHANISMS, AttentionContext
from icefall_attn.attention.linear import LinearAttention
from icefall_attn.attention.linear.sums import (
    divide,
    pair_weights,
    running_sums,
    sum_keys_first,
)
from icefall_attn.attention.contexts import CAUSAL
from icefall_attn.attention.masking import visible_bias
from icefall_attn.errors import UserError
from icefall_attn.nn.lengths import valid_mask

DIM, HEADS = 8, 2
KINDS = [name for name, cls in MECHANISMS.items() if issubclass(cls, LinearAttention)]
VECTORS = Path(__file__).parents[1] / "vectors"


def make(kind, heads=HEADS, dim=DIM, **options):
    torch.manual_seed(0)
    cls = MECHANISMS[kind]
    return cls(dim, heads, 0.0, cls.Config(**options)).double()


def make_context(lengths, frames):
    valid = valid_mask(torch.tensor(lengths), frames)
    return AttentionContext(valid, visible_bias(valid, torch.float64), [])


@pytest.mark.parametrize(
    "case, kind, options",
    [
        ("mrpe", "cosformer", {}),
        ("mape", "m_ape", {}),
        ("lmape", "lmla", {"max_length": 3}),
    ],
)
@pytest.mark.parametrize("product", ["left", "right"])
def test_published_examples(case, kind, options, product):
    frozen = json.loads((VECTORS / "lmla.json").read_text())
    module = make(kind, heads=1, dim=2, product=product, **options)
    if kind == "lmla":
        with torch.no_grad():
            module.table.copy_(torch.tensor(frozen["R"])[None])
    for name, layer in zip("qkv", (module.query, module.key, module.value)):
        value = torch.tensor(frozen[name], dtype=torch.float64)[None]
        layer.forward = lambda x, value=value: value
    module.out = torch.nn.Identity()
    out = module(torch.zeros(1, 3, 2, dtype=torch.float64), make_context([3], 3))
    expected = torch.tensor(frozen["cases"][case]["out"], dtype=torch.float64)
    torch.testing.assert_close(out[0], expected, rtol=1e-6, atol=1e-6)


def test_the_example_names_the_kernel():
    frozen = json.loads((VECTORS / "lmla.json").read_text())["cases"]
    assert make("cosformer").kernel == frozen["mrpe"]["psi"]
    assert make("m_ape").kernel == frozen["mape"]["psi"]
    assert make("lmla").kernel == frozen["lmape"]["psi"]


@pytest.mark.parametrize("normalizer", ["reweighted", "kernel"])
@pytest.mark.parametrize("kind", KINDS)
def test_both_products_are_one_function(kind, normalizer):
    """Values and gradients, of everything that is learned."""
    x = torch.randn(3, 13, DIM, dtype=torch.float64)
    context = make_context([13, 5, 1], 13)
    results = []
    for product in ("left", "right"):
        module = make(kind, product=product, normalizer=normalizer)
        out = module(x, context)
        parameters = [p for p in module.parameters() if p.requires_grad]
        results.append((out, torch.autograd.grad(out.pow(2).sum(), parameters)))
    torch.testing.assert_close(results[0], results[1], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_the_rule_turns_at_the_head_width(kind):
    module = make(kind)
    width = DIM // HEADS
    assert [
        module.goes_left(torch.zeros(1, HEADS, n, width)) for n in (width, width + 1)
    ] == [True, False]


@pytest.mark.parametrize("kind", KINDS)
def test_weights_sum_to_one(kind):
    """With values that are all 1 the result is 1."""
    module = make(kind, kernel="elu1")
    module.value.forward = torch.ones_like
    module.out = torch.nn.Identity()
    context = make_context([20, 7], 20)
    out = module(torch.randn(2, 20, DIM, dtype=torch.float64), context)
    torch.testing.assert_close(out[context.valid], torch.ones_like(out[context.valid]))
    assert out[~context.valid].abs().sum() == 0


def test_learned_positions_can_be_the_fixed_ones():
    fixed = make("m_ape")
    learned = make("lmla", max_length=6, init="m_ape")
    learned.load_state_dict(fixed.state_dict(), strict=False)
    x, context = torch.randn(1, 6, DIM, dtype=torch.float64), make_context([6], 6)
    torch.testing.assert_close(learned(x, context), fixed(x, context))


def test_a_table_of_zeros_is_plain_linear_attention():
    module = make("lmla", max_length=9)
    torch.nn.init.zeros_(module.table)
    q, k, v = (torch.rand(1, HEADS, 9, 4, dtype=torch.float64) for _ in range(3))
    factors = module.multipliers(torch.arange(9).unsqueeze(0), torch.tensor([9]))
    one = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    for left in (True, False):
        torch.testing.assert_close(
            attend(q, k, v, factors, left),
            attend(q, k, v, [(one, one)], not left),
        )


@pytest.mark.parametrize("init", ["uniform", "normal", "m_ape"])
def test_the_table_learns_from_the_start_and_does_not_decay(init):
    from icefall_attn.training.schedule import FlatOptimizer, OptimConfig

    module = make("lmla", max_length=12, init=init)
    module(
        torch.randn(1, 12, DIM, dtype=torch.float64), make_context([12], 12)
    ).sum().backward()
    share = (module.table.grad.abs() > 0).double().mean()
    assert share > 0.9  # the first row of m_ape stands at 0, where cos is flat
    module.zero_grad()
    optimizer = FlatOptimizer(module, OptimConfig(weight_decay=0.5))
    before, weight = module.table.detach().clone(), module.query.weight.detach().clone()
    optimizer.zero_grad()
    optimizer.step(0.1, 0.0)
    assert torch.equal(module.table, before) and not torch.equal(
        module.query.weight, weight
    )


def test_longer_than_the_table():
    x, context = torch.randn(1, 9, DIM, dtype=torch.float64), make_context([9], 9)
    with pytest.raises(
        UserError,
        match="9 frames is longer than 5; cut it, or train with a larger lmla.max_length",
    ):
        make("lmla", max_length=5)(x, context)
    frames, lengths = torch.arange(9).unsqueeze(0), torch.tensor([9])
    clamped = make("lmla", max_length=5, beyond="clamp").rows(frames, lengths)
    assert torch.equal(clamped[..., 4:, :], clamped[..., 4:5, :].expand(1, 1, 5, -1))
    stretched = make("lmla", max_length=5, beyond="interpolate")
    rows = stretched.rows(frames, lengths)
    torch.testing.assert_close(rows[0, :, ::2], stretched.table)
    torch.testing.assert_close(rows[0, :, 1], (rows[0, :, 0] + rows[0, :, 2]) / 2)


def test_stretching_knows_each_utterances_own_length():
    """Alone or beside a longer one; one that fits is not stretched."""
    module = make("lmla", max_length=5, beyond="interpolate")
    x = torch.randn(3, 9, DIM, dtype=torch.float64)
    out = module(x, make_context([9, 7, 4], 9))
    for row, length in enumerate((9, 7, 4)):
        alone = module(x[row : row + 1, :length], make_context([length], length))
        torch.testing.assert_close(out[row, :length], alone[0])
    plain = make("lmla", max_length=5)
    assert torch.equal(plain(x[2:, :4], make_context([4], 4)), alone)


@pytest.mark.parametrize("kind", ["cosformer", "lbla", "m_ape"])
def test_period(kind):
    """The utterance's own length by default; a fixed one must not be exceeded."""
    x, context = torch.randn(1, 9, DIM, dtype=torch.float64), make_context([9], 9)
    torch.testing.assert_close(make(kind, period=9)(x, context), make(kind)(x, context))
    assert not torch.allclose(make(kind, period=20)(x, context), make(kind)(x, context))
    with pytest.raises(UserError, match="9 frames is longer than 8; its weights"):
        make(kind, period=8)(x, context)


@pytest.mark.parametrize("kind", KINDS)
def test_padding_does_not_count_as_length(kind):
    options = {"max_length": 5} if kind == "lmla" else {"period": 5}
    x = torch.randn(1, 9, DIM, dtype=torch.float64)
    module = make(kind, **options)
    torch.testing.assert_close(
        module(x, make_context([5], 9))[:, :5], module(x[:, :5], make_context([5], 5))
    )
    module.parts(x[:, :5], torch.arange(5).unsqueeze(0))
    with pytest.raises(UserError, match="6 frames is longer than 5"):
        module.parts(x[:, 5:6], torch.tensor([[5]]))


def make_causal(kind, **options):
    options.update(max_length=200) if kind == "lmla" else options.update(period=200)
    return make(kind, **options)


@pytest.mark.parametrize("normalizer", ["reweighted", "kernel"])
@pytest.mark.parametrize("kind", KINDS)
def test_causal_pieces_are_one_function(kind, normalizer):
    """Any size of pieces, pairs of all frames among them: values and gradients."""
    x = torch.randn(2, 13, DIM, dtype=torch.float64)
    context = make_context([13, 6], 13)._replace(window=CAUSAL)
    results = []
    for product, piece in (("left", 1), ("right", 1), ("right", 4), ("right", 64)):
        module = make_causal(kind, product=product, normalizer=normalizer)
        module.piece = piece
        out = module(x, context)
        parameters = [p for p in module.parameters() if p.requires_grad]
        grads = torch.autograd.grad(out.pow(2).sum(), parameters)
        results.append((out.detach(), grads))
    for other in results[1:]:
        torch.testing.assert_close(results[0], other, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_a_causal_frame_is_the_last_of_its_prefix(kind):
    """What comes later changes nothing; what came before is all there."""
    module = make_causal(kind)
    module.piece = 4
    x = torch.randn(1, 11, DIM, dtype=torch.float64)
    out = module(x, make_context([11], 11)._replace(window=CAUSAL))
    for n in range(1, 12):
        prefix = module(x[:, :n], make_context([n], n))
        torch.testing.assert_close(out[:, n - 1], prefix[:, -1])


@pytest.mark.parametrize("normalizer", ["reweighted", "kernel"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_parts_of_a_pass_make_it(kind, normalizer):
    """Pairs of frames, with and without sums in place of the first of them."""
    module = make_causal(kind, normalizer=normalizer)
    x = torch.randn(2, 20, DIM, dtype=torch.float64)
    expected = module(x, make_context([20, 20], 20)._replace(window=CAUSAL))
    query, key, value = module.parts(x, torch.arange(20).unsqueeze(0))
    bias = visible_bias(torch.ones(2, 20, dtype=torch.bool), torch.float64, CAUSAL)
    weights = module.weigh(module.scores(query, key, 0), bias)
    out = module.finish(module.mix(weights, value))
    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-12)
    past = torch.zeros(1, dtype=torch.float64)
    past = module.absorb(past, key[:, :, :8], value[:, :, :8])
    out = module.mix(weights[:, :, 8:, 8:], value[:, :, 8:])
    out = module.finish(out + module.recall(past, query[:, :, 8:]))
    torch.testing.assert_close(out, expected[:, 8:], rtol=1e-10, atol=1e-12)


def test_the_causal_pass_is_linear_in_the_length():
    """Twice the frames: twice the work, and nothing of the size (T, d, d)."""
    largest = {}
    for frames in (256, 512):
        q = torch.rand(1, 1, frames, 32)
        with _Counter() as counter:
            running_sums(q, q, q, 64)
        largest[frames] = counter.total, counter.largest
    assert largest[512][0] == 2 * largest[256][0]
    assert largest[512][1] <= 64 * 512 < 512 * 32 * 32


@pytest.mark.parametrize("kind", KINDS)
def test_no_causal_pass_makes_a_matrix_for_each_frame(kind):
    """Of a width of 32, as the module has it: pairs and sums of pieces are all there is."""
    torch.manual_seed(0)
    options = {"max_length": 512} if kind == "lmla" else {"period": 512}
    config = MECHANISMS[kind].Config(**options)
    module = MECHANISMS[kind](32, 1, 0.0, config)
    context = make_context([512], 512)._replace(window=CAUSAL)
    with _Counter() as counter:
        module(torch.randn(1, 512, 32), context)
    assert counter.largest <= 64 * 512 < 512 * 32 * 32


@pytest.mark.parametrize("scope, count", [("head", 1), ("model", HEADS)])
def test_scope_of_the_table(scope, count):
    assert make("lmla", max_length=7, scope=scope).table.shape == (
        count,
        7,
        DIM // HEADS,
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("product", ["left", "right"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_thousands_of_frames_in_half_precision(kind, product, dtype):
    """Sums of 4000 kernels leave float16's range; they are not kept in it."""
    options = {"max_length": 4000} if kind == "lmla" else {}
    module = make(kind, product=product, **options).float()
    x, context = 3 * torch.randn(1, 4000, DIM), make_context([4000], 4000)
    exact = module(x, context)
    if dtype == torch.float16 and not torch.__version__ >= "2.4":
        pytest.skip("this torch has no float16 autocast on a CPU")
    with torch.autocast("cpu", dtype=dtype):
        out = module(x, context)
    assert torch.isfinite(out).all()
    assert (out.float() - exact).norm() < 0.05 * exact.norm()


def test_signs_of_the_divisor_are_kept():
    q = torch.ones(1, 1, 2, 1, dtype=torch.float64)
    v = torch.tensor([[[[1.0], [2.0]]]], dtype=torch.float64)
    negative = torch.tensor([[[[-1.0], [-1.0]]]], dtype=torch.float64)
    out = attend(q, torch.ones_like(q), v, [(q, negative)], True)
    torch.testing.assert_close(out, torch.full_like(out, 1.5))


@pytest.mark.parametrize(
    "kind, options, words",
    [
        ("lmla", {"kernel": "tanh"}, "'tanh'"),
        ("lmla", {"scope": "layer"}, "'layer'"),
        ("lmla", {"max_length": 0}, "not 0"),
        ("cosformer", {"product": "both"}, "'both'"),
    ],
)
def test_wrong_options_are_named(kind, options, words):
    with pytest.raises(ValueError, match=words):
        MECHANISMS[kind].Config(**options)


def test_weights_are_dropped_where_they_are_made():
    """By the left product, asked for as such, in training; the others have none."""
    torch.manual_seed(0)
    x, context = torch.randn(1, 40, DIM, dtype=torch.float64), make_context([40], 40)
    for product in ("left", "train_left", "right", "auto"):
        for kind in KINDS:
            config = MECHANISMS[kind].Config(product=product)
            module = MECHANISMS[kind](DIM, HEADS, 0.5, config).double()
            module.weights_dropout.p = 0.5 * (module.weights_dropout.p > 0)
            dropped, exact = module(x, context), module.eval()(x, context)
            drops = product in ("left", "train_left")
            assert torch.allclose(dropped, exact) != drops
            assert module.goes_left(torch.zeros(1, 1, 40, 4)) == (product == "left")
    # what is dropped is a weight, after it was divided: the mean over many masks is the exact result
    config = MECHANISMS["cosformer"].Config(product="train_left")
    module = MECHANISMS["cosformer"](DIM, HEADS, 0.2, config).double()
    many = module(x.expand(4000, -1, -1), make_context([40] * 4000, 40))
    exact = module.eval()(x, context)[0]
    error = (many.mean(dim=0) - exact).abs().max()
    assert error < 0.1 * (many[0] - exact).abs().max()


def test_small_divisors_are_counted():
    module = make("lmla", max_length=6).train()
    x, context = torch.randn(2, 6, DIM, dtype=torch.float64), make_context([6, 2], 6)
    assert module.watch() == {}
    module(x, context)
    assert module.watch() == {"small_divisors": 0}
    torch.nn.init.constant_(module.table[:, 2:], 0.5 * torch.pi)
    torch.nn.init.constant_(module.table[:, :2], 0.5 * torch.pi)
    module(x, context)
    module(x, context)
    assert module.watch() == {"small_divisors": 1} and module.watch() == {}
    module.eval()(x, context)
    assert module.watch() == {}


def attend(query, key, value, factors, left):
    """By either product."""
    if left:
        weights = pair_weights(query, key, factors)
        return divide(weights @ value, weights.sum(dim=3, keepdim=True))
    return divide(*sum_keys_first(query, key, value, factors))


def test_quadratic_and_linear_cost():
    """Doubling the length doubles the right product's multiply-adds and quadruples the left's."""
    counts = {}
    for left in (True, False):
        for frames in (64, 128):
            q = torch.rand(1, 1, frames, 4)
            with _Counter() as counter:
                attend(q, q, q, [(torch.ones(1), torch.ones(1))], left)
            counts[left, frames] = counter.total
    assert counts[True, 128] > 3.9 * counts[True, 64]
    assert counts[False, 128] <= 2 * counts[False, 64]


class _Counter:
    """Counts the multiply-adds of `torch.matmul`."""

    def __enter__(self):
        self.total, self.largest, self.original = 0, 0, torch.matmul

        def counting(a, b):
            self.total += a.numel() * b.size(-1)
            out = self.original(a, b)
            self.largest = max(self.largest, out.numel())
            return out

        torch.matmul = counting
        return self

    def __exit__(self, *error):
        torch.matmul = self.original


def test_kinds_are_the_linear_family():
    assert set(KINDS) == {"cosformer", "lbla", "m_ape", "lmla"}
    assert math.isclose(make("lbla").psi(torch.zeros(1)).item(), 1.0)

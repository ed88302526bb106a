"""Which queries attend, and what becomes of the others."""

import itertools
import json
import math
from pathlib import Path

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from icefall_attn.attention import AttentionConfig, AttentionContext
from icefall_attn.attention.full import FullAttention
from icefall_attn.attention.masking import visible_bias
from icefall_attn.attention.prob_sparse import ProbSparseAttention
from icefall_attn.encoder.conformer import Conformer, ConformerConfig
from icefall_attn.encoder.maps import attention_maps
from icefall_attn.nn.lengths import valid_mask

DIM, HEADS = 8, 2
VECTORS = Path(__file__).parents[1] / "vectors"


def make(layer=0, **options):
    torch.manual_seed(0)
    config = ProbSparseAttention.Config(**options)
    return ProbSparseAttention(DIM, HEADS, 0.0, config, layer).double().eval()


def make_context(lengths, frames):
    valid = valid_mask(torch.tensor(lengths), frames)
    return AttentionContext(valid, visible_bias(valid, torch.float64), [])


def random_heads(batch, frames, width=DIM // HEADS):
    return torch.randn(batch, HEADS, frames, width, dtype=torch.float64)


def test_the_published_example():
    """One head without projections: sampled keys, chosen queries and outputs."""
    frozen = json.loads((VECTORS / "probsparse.json").read_text())
    config = ProbSparseAttention.Config(
        r_sparse=frozen["r_sparse"], r_sample=frozen["r_sample"]
    )
    module = ProbSparseAttention(4, 1, 0.0, config).double().eval()
    tensors = {n: torch.tensor(frozen[n], dtype=torch.float64)[None] for n in "qkv"}
    for name, layer in zip("qkv", (module.query, module.key, module.value)):
        value = tensors[name]
        layer.forward = lambda x, value=value: value
    module.out = torch.nn.Identity()
    lengths = torch.tensor([6])
    positions, counted = module.sample(lengths)
    assert positions[counted].tolist() == frozen["sampled"]
    index, active = module.choose(
        tensors["q"][:, None] * 0.5, tensors["k"][:, None], lengths
    )
    assert index[0, 0][active[0, 0]].tolist() == frozen["selected"]
    out = module(torch.zeros(1, 6, 4, dtype=torch.float64), make_context([6], 6))
    expected = torch.tensor(frozen["out"], dtype=torch.float64)
    torch.testing.assert_close(out[0], expected, rtol=1e-6, atol=1e-6)


def test_all_queries_active_is_full_attention():
    module = make(r_sparse=1.0)
    full = FullAttention(DIM, HEADS, 0.0).double()
    full.load_state_dict(module.state_dict())  # the same parameters by name
    x = torch.randn(3, 9, DIM, dtype=torch.float64)
    context = make_context([9, 4, 1], 9)
    valid = context.valid
    out, expected = module(x, context)[valid], full(x, context)[valid]
    torch.testing.assert_close(out, expected)
    weight = torch.randn_like(out)
    grads = torch.autograd.grad((out * weight).sum(), list(module.parameters()))
    wanted = torch.autograd.grad((expected * weight).sum(), list(full.parameters()))
    torch.testing.assert_close(grads, wanted)


@pytest.mark.parametrize(
    "options", [{}, {"selection": "random"}, {"head_mode": "shared"}]
)
def test_numbers_of_active_queries(options):
    module = make(r_sparse=0.4, **options)
    lengths = [11, 1, 5, 0, 3]
    index, active = module.choose(
        random_heads(5, 11), random_heads(5, 11), torch.tensor(lengths)
    )
    expected = [min(n, max(1, math.ceil(0.4 * n - 1e-9))) for n in lengths]
    assert active.sum(dim=2).flatten().tolist() == expected
    for row, length in enumerate(lengths):
        for head in range(index.size(1)):
            chosen = index[row, head][active[row, 0]].tolist()
            assert len(set(chosen)) == len(chosen) and all(i < length for i in chosen)


@pytest.mark.parametrize("training", [False, True])
def test_sampled_keys(training):
    module = make(r_sample=3.0)
    module.train(training)
    for length in range(1, 60):
        positions, counted = module.sample(torch.tensor([length, 100]))
        own = positions[0][counted[0]].tolist()
        assert len(own) == min(length, max(2, math.ceil(3.0 * math.log(length))))
        assert own == sorted(own) and own[-1] < length
        if (
            not training
        ):  # one of each part's middle; at random two parts may share a frame
            assert len(set(own)) == len(own)
    draws = {tuple(module.sample(torch.tensor([50]))[0][0].tolist()) for _ in range(5)}
    assert (len(draws) > 1) == training


def test_lazy_queries_keep_their_own_value():
    module = make(r_sparse=0.3, n_share=2)
    x = torch.randn(1, 10, DIM, dtype=torch.float64)
    context = make_context([10], 10)
    seen = []
    module.out.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    module(x, context)
    index, _ = context.shared
    merged, value = seen[0][0], module.value(x)[0]
    for head in range(HEADS):
        part = slice(head * 4, head * 4 + 4)
        lazy = [i for i in range(10) if i not in index[0, head].tolist()]
        assert len(lazy) == 7
        assert torch.equal(merged[lazy][:, part], value[lazy][:, part])
        busy = index[0, head].tolist()
        assert not torch.isclose(merged[busy][:, part], value[busy][:, part]).all()


def test_choosing_has_no_gradient():
    """A lazy query's own projection moves nothing."""
    module = make(r_sparse=0.3, n_share=2)
    query = torch.randn(1, 10, DIM, dtype=torch.float64, requires_grad=True)
    module.query.forward = lambda x: query
    context = make_context([10], 10)
    module(torch.randn(1, 10, DIM, dtype=torch.float64), context).pow(
        2
    ).sum().backward()
    index, _ = context.shared
    for head in range(HEADS):
        part = slice(head * 4, head * 4 + 4)
        moved = query.grad[0, :, part].abs().sum(dim=1).nonzero().flatten().tolist()
        assert set(moved) == set(index[0, head].tolist())


@pytest.mark.parametrize("measure", ["max_mean", "lse"])
def test_half_precision_chooses_as_float32_does(measure):
    """Of the same queries and keys; products of bfloat16 would tie and shuffle them."""
    module = make(measure=measure, r_sparse=0.3).float()
    query, key = random_heads(4, 60).bfloat16(), random_heads(4, 60).bfloat16()
    lengths = torch.full((4,), 60)
    exact, _ = module.choose(query.float(), key.float(), lengths)
    assert torch.equal(module.choose(query, key, lengths)[0], exact)


def test_few_keys_are_two_at_least():
    """With one the measure would be 0 for all queries."""
    module = make(r_sample=0.01)
    for length in (1, 2, 3, 50):
        positions, counted = module.sample(torch.tensor([length]))
        assert int(counted.sum()) == min(length, 2)
    query, key = random_heads(1, 50), random_heads(1, 50)
    assert module.measure(query, key, torch.tensor([50])).min() > 0


@pytest.mark.parametrize("measure", ["max_mean", "lse"])
def test_the_measure_is_that_of_scaled_scores(measure):
    """Of all keys, from the definition; lse ranks queries otherwise at another scale."""
    module, x = make(measure=measure, r_sample=100.0), torch.randn(1, 9, DIM) * 6
    x = x.double()
    query, key = module.query(x).view(9, HEADS, -1), module.key(x).view(9, HEADS, -1)
    scores = torch.einsum("ihd,jhd->hij", query, key) / math.sqrt(DIM / HEADS)
    peak = {"max_mean": scores.amax, "lse": scores.logsumexp}[measure](dim=2)
    measured = []
    inner = module.measure
    module.measure = lambda *a: measured.append(inner(*a)) or measured[-1]
    module.min_len = 1
    module(x, make_context([9], 9))
    expected = peak - scores.mean(dim=2)
    torch.testing.assert_close(measured[0][0].double(), expected, rtol=1e-5, atol=1e-5)


def test_padded_queries_give_nothing():
    """Before the output's bias: what a lazy query keeps, its value, is not kept there."""
    module, x = make(r_sparse=0.2), torch.randn(2, 20, DIM, dtype=torch.float64)
    module.out = torch.nn.Identity()
    out = module(x, make_context([20, 7], 20))
    assert out[1, 7:].abs().max() == 0 and (out[0].abs().sum(dim=1) > 0).all()


def test_measures_bound_each_other():
    """On all keys: max - mean <= M <= max - mean + ln L; M >= ln L, with equality if q = 0."""
    frames = 7
    by_max, by_lse = make(r_sample=100.0), make(r_sample=100.0, measure="lse")
    query, key = random_heads(2, frames), random_heads(2, frames)
    lengths = torch.tensor([frames, frames])
    low, exact = by_max.measure(query, key, lengths), by_lse.measure(
        query, key, lengths
    )
    log = math.log(frames)
    assert (low <= exact + 1e-9).all() and (exact <= low + log + 1e-9).all()
    assert (exact >= log - 1e-9).all()
    zero = by_lse.measure(torch.zeros_like(query), key, lengths)
    torch.testing.assert_close(zero, torch.full_like(zero, log))


def test_the_measure_forgets_the_order_of_keys():
    module = make(r_sample=100.0, measure="lse")
    query, key = random_heads(1, 7), random_heads(1, 7)
    lengths, order = torch.tensor([7]), torch.randperm(7)
    torch.testing.assert_close(
        module.measure(query, key[:, :, order], lengths),
        module.measure(query, key, lengths),
    )


def test_padding_changes_no_choice():
    """The same queries, alone or in a batch whose padding holds the largest values."""
    module = make(r_sparse=0.4)
    query, key = random_heads(3, 12), random_heads(3, 12)
    lengths = [12, 7, 3]
    for row, length in enumerate(lengths):
        query[row, :, length:] = key[row, :, length:] = 1e6
    index, active = module.choose(query, key, torch.tensor(lengths))
    for row, length in enumerate(lengths):
        part = slice(row, row + 1), slice(None), slice(0, length)
        own, _ = module.choose(query[part], key[part], torch.tensor([length]))
        for head in range(HEADS):
            chosen = index[row, head][active[row, 0]].tolist()
            assert chosen == own[0, head].tolist()


def test_training_follows_the_seed():
    module = make(r_sparse=0.3).train()
    x, context = torch.randn(1, 40, DIM, dtype=torch.float64), make_context([40], 40)
    outs = []
    for seed in (1, 1, 2, 3, 4, 5):
        torch.manual_seed(seed)
        outs.append(module(x, context))
    assert torch.equal(outs[0], outs[1])
    assert not all(torch.equal(outs[0], out) for out in outs[2:])


@pytest.mark.parametrize("selection", ["measure", "random"])
def test_recomputed_activations_choose_the_same_queries(selection):
    """Activation checkpointing runs the forward pass twice; the gradients are those of one pass."""
    module = make(r_sparse=0.3, selection=selection).train()
    x = torch.randn(1, 30, DIM, dtype=torch.float64, requires_grad=True)
    grads = []
    for checkpointed in (False, True):
        torch.manual_seed(7)
        run = lambda x: module(x, make_context([30], 30))
        out = checkpoint(run, x, use_reentrant=False) if checkpointed else run(x)
        grads.append(torch.autograd.grad(out.pow(2).sum(), [x, *module.parameters()]))
    torch.testing.assert_close(grads[0], grads[1])


@pytest.mark.parametrize("n_share", [1, 2, 3])
def test_recomputed_blocks_take_the_choice_of_their_group(n_share):
    """When all groups have chosen before the first one's gradients are asked for."""
    encoder = make_encoder(4, r_sparse=0.3, n_share=n_share).train()
    forwards = [block.forward for block in encoder.blocks]
    x, lengths = torch.randn(2, 90, 80, dtype=torch.float64), torch.tensor([90, 50])
    grads = []
    for checkpointed in (False, True):
        torch.manual_seed(7)
        for block, forward in zip(encoder.blocks, forwards):
            again = lambda *args, f=forward: checkpoint(f, *args, use_reentrant=False)
            block.forward = again if checkpointed else forward
        out = encoder(x, lengths)[0]
        grads.append(torch.autograd.grad(out.pow(2).sum(), list(encoder.parameters())))
    torch.testing.assert_close(grads[0], grads[1])


def test_fewer_active_queries_make_fewer_scores(monkeypatch):
    """Scores of active queries with all keys: in proportion to r_sparse."""
    counts, original = [], torch.softmax
    monkeypatch.setattr(
        torch,
        "softmax",
        lambda x, dim: counts.append(x.numel()) or original(x, dim),
    )
    x, context = torch.randn(1, 40, DIM, dtype=torch.float64), make_context([40], 40)
    for r_sparse in (1.0, 0.5, 0.25):
        module = make(r_sparse=r_sparse).train()  # so that no fused kernel is taken
        module.weights_dropout.p = 0.1
        module(x, context)
    assert counts == [HEADS * 40 * 40, HEADS * 20 * 40, HEADS * 10 * 40]


def test_ties_take_the_first():
    module = make(r_sparse=0.5)
    query = torch.ones(1, HEADS, 8, 4, dtype=torch.float64)
    index, active = module.choose(query, random_heads(1, 8), torch.tensor([6]))
    assert index[0, 0][active[0, 0]].tolist() == [0, 1, 2]


def make_encoder(layers, **options):
    torch.manual_seed(0)
    attention = AttentionConfig(kind="prob_sparse")
    attention.prob_sparse = ProbSparseAttention.Config(**options)
    config = ConformerConfig(
        dim=DIM, heads=HEADS, num_layers=layers, feed_forward_dim=8, kernel_size=3,
        subsampling_channels=2, dropout=0.0, attention=attention,
    )  # fmt: skip
    return Conformer(config).double()


@pytest.mark.parametrize("n_share", [1, 2, 4, 6])
def test_layers_of_a_group_share_one_choice(n_share, monkeypatch):
    calls, choose = [], ProbSparseAttention.choose

    def count(self, *args):
        calls.append(self.group)
        return choose(self, *args)

    monkeypatch.setattr(ProbSparseAttention, "choose", count)
    encoder = make_encoder(6, n_share=n_share).eval()
    x, lengths = torch.randn(2, 60, 80, dtype=torch.float64), torch.tensor([60, 40])
    maps = attention_maps(encoder, x, lengths)
    # once in the pass, once for the maps, which call the first layer of each group again
    assert calls == 2 * list(range(math.ceil(6 / n_share)))
    lazy = [weights.diagonal(dim1=2, dim2=3) == 1 for weights in maps]
    for layer, own in enumerate(lazy):
        assert torch.equal(own, lazy[layer - layer % n_share])
    for one, other in itertools.combinations(lazy[::n_share], 2):
        assert not torch.equal(one, other)


OPTIONS = [
    {},
    {"selection": "random"},
    {"selection": "random", "head_mode": "shared"},
    {"head_mode": "shared"},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_evaluation_is_deterministic(options):
    """Of another pass, another order of the batch, and other padding, whatever is in it."""
    module = make(**options).eval()
    x = torch.randn(2, 40, DIM, dtype=torch.float64)
    outs = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        outs.append(module(x, make_context([40, 25], 40)))
    assert torch.equal(*outs)
    turned = module(x.flip(0), make_context([25, 40], 40)).flip(0)
    torch.testing.assert_close(turned, outs[0])
    longer = torch.cat([x, torch.full((2, 30, DIM), 1e3, dtype=x.dtype)], dim=1)
    padded = module(longer, make_context([40, 25], 70))
    torch.testing.assert_close(padded[0, :40], outs[0][0])
    torch.testing.assert_close(padded[1, :25], outs[0][1, :25])
    alone = module(x[1:, :25], make_context([25], 25))
    torch.testing.assert_close(alone[0], outs[0][1, :25])


def test_a_random_choice_is_spread():
    """In evaluation too: over the frames, another one for each head and length."""
    module = make(selection="random").eval()
    chosen = {}
    for length in range(60, 100):
        query = random_heads(1, length)
        index, active = module.choose(query, query, torch.tensor([length]))
        for head in range(HEADS):
            mine = index[0, head][active[0, 0]].tolist()
            assert len(set(mine)) == len(mine)
            chosen[length, head] = [frame / length for frame in mine]
    every = [place for places in chosen.values() for place in places]
    counts = torch.histc(torch.tensor(every), bins=8, min=0.0, max=1.0)
    assert counts.min() > 0.85 * counts.mean() and counts.max() < 1.15 * counts.mean()
    assert len({tuple(places) for places in chosen.values()}) == len(chosen)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"r_sparse": 0.0}, "r_sparse"),
        ({"r_sample": 0.0}, "r_sample"),
        ({"n_share": 0}, "n_share"),
        ({"measure": "kl"}, "'kl'"),
        ({"head_mode": "one"}, "'one'"),
    ],
)
def test_wrong_options_are_named(options, words):
    with pytest.raises(ValueError, match=words):
        ProbSparseAttention.Config(**options)


def test_short_utterances_attend_with_all_queries():
    """Below `min_len` it is full attention, whatever the utterance is padded to."""
    torch.manual_seed(0)
    module = make(min_len=6)
    full = make(r_sparse=1.0)
    sparse = make()
    x = torch.randn(3, 9, DIM, dtype=torch.float64)
    lengths = [9, 5, 6]
    out = module(x, make_context(lengths, 9))
    for row, (length, same) in enumerate(zip(lengths, (sparse, full, sparse))):
        for other in (module, same):
            alone = other(x[row : row + 1, :length], make_context([length], length))
            torch.testing.assert_close(out[row, :length], alone[0])

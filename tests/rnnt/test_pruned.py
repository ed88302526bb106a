"""The losses against all alignments one by one, against k2, and in the cases that break others."""

from itertools import product

import pytest
import torch
from rnnt.loss_inputs import BACKENDS, Inputs, close, grads
from torch import nn

from icefall_attn.rnnt import arcs, lattice
from icefall_attn.rnnt.config import LossConfig
from icefall_attn.rnnt.pruned import full_loss, simple_loss
from icefall_attn.rnnt.ranges import covering_range

TYPES = ["regular", "modified", "constrained"]


def by_enumeration(log_probs, labels, rnnt_type="regular"):
    """-log of the sum over all alignments of one utterance, ``(T, U + 1, V)``, one by one."""
    frames, positions, _ = log_probs.shape
    count = positions - 1
    scores = []
    for emitted in product(range(frames), repeat=count):
        order = list(emitted)
        if order != sorted(order) or (
            rnnt_type != "regular" and len(set(order)) < count
        ):
            continue
        score, u = log_probs.new_zeros(()), 0
        for t in range(frames):
            moved = False
            while u < count and order[u] == t:
                score = score + log_probs[t, u, labels[u]]
                u += 1
                if rnnt_type == "constrained":
                    score = score + log_probs[t, u, 0]
                moved = True
            if rnnt_type == "regular" or not moved:
                score = score + log_probs[t, u, 0]
        scores.append(score)
    return -torch.logsumexp(torch.stack(scores), dim=0)


@pytest.mark.parametrize("rnnt_type", TYPES)
@pytest.mark.parametrize("frames, count", list(product(range(1, 5), range(5))))
def test_full_loss_is_the_sum_over_alignments(frames, count, rnnt_type):
    if rnnt_type != "regular" and count > frames:
        pytest.skip("no alignment exists")
    vocab = int(torch.randint(2, 7, ()))
    logits = torch.randn(
        1, frames, count + 1, vocab, dtype=torch.float64, requires_grad=True
    )
    labels = torch.randint(1, vocab, (1, count))
    sizes = torch.tensor([count]), torch.tensor([frames])
    config = LossConfig(backend="torch", rnnt_type=rnnt_type)
    loss = full_loss(logits, labels, *sizes, config)[0]
    expected = by_enumeration(logits[0].log_softmax(2), labels[0].tolist(), rnnt_type)
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=1e-10)
    (grad,) = torch.autograd.grad(loss, logits, retain_graph=True)
    (wanted,) = torch.autograd.grad(expected, logits)
    torch.testing.assert_close(grad, wanted, rtol=1e-9, atol=1e-10)


def test_gradients_by_differences():
    logits = torch.randn(2, 4, 3, 5, dtype=torch.float64, requires_grad=True)
    labels, counts, lengths = (
        torch.tensor([[1, 2], [3, 0]]),
        torch.tensor([2, 1]),
        torch.tensor([4, 3]),
    )
    config = LossConfig(backend="torch")
    assert torch.autograd.gradcheck(
        lambda x: full_loss(x, labels, counts, lengths, config), logits
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_full_width_equals_the_unpruned_loss(backend):
    inputs = Inputs()
    _, pruned = inputs.losses(prune_range=20, backend=backend)
    full = inputs.full(backend=backend)
    close(pruned, full)
    close(grads(pruned, inputs.tensors), grads(full, inputs.tensors))


@pytest.mark.parametrize("width", [2, 3, 5])
def test_pruning_only_takes_paths_away(width):
    inputs = Inputs()
    _, pruned = inputs.losses(prune_range=width)
    full = inputs.full()
    assert torch.isfinite(pruned).all() and (pruned >= full - 1e-4).all()
    assert (pruned > full + 1e-6).any()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("options", [{}, {"am_scale": 0.1}, {"delay_penalty": 0.01}])
def test_nothing_depends_on_padding_or_order(backend, options):
    inputs = Inputs()
    together = inputs.losses(backend=backend, prune_range=5, **options)
    if (
        "am_scale" not in options
    ):  # that one mixes in a mean over the batch, by definition
        found = []
        for index in range(4):
            alone = inputs.row(index).losses(backend=backend, prune_range=5, **options)
            close([loss[index] for loss in together], [loss[0] for loss in alone])
            found.append(grads(sum(alone), inputs.tensors))
        close(grads(sum(together), inputs.tensors), [sum(g) for g in zip(*found)])
    order = torch.tensor([2, 0, 3, 1])
    for name in ("am", "lm", "encoder", "predictor", "labels", "counts", "lengths"):
        setattr(inputs, name, getattr(inputs, name)[order])
    inputs.labels[0, 1:] = -100  # padding of labels may hold anything
    shuffled = inputs.losses(backend=backend, prune_range=5, **options)
    close([loss[order] for loss in together], list(shuffled))


def test_am_scale_does_not_depend_on_padded_width():
    """k2's own smoothing takes a mean over padding."""
    inputs = Inputs(counts=(3, 3), lengths=(8, 8))
    simple, _ = inputs.losses(am_scale=0.2)
    inputs.lm = torch.cat((inputs.lm, torch.randn(2, 4, 9)), dim=1)
    inputs.predictor = torch.cat((inputs.predictor, torch.randn(2, 4, 6)), dim=1)
    inputs.labels = torch.cat(
        (inputs.labels, torch.ones(2, 4, dtype=torch.int64)), dim=1
    )
    close(inputs.losses(am_scale=0.2)[0], simple)


@pytest.mark.skipif(bool(lattice.why_no_k2()), reason=lattice.why_no_k2())
@pytest.mark.parametrize("penalty", [0.0, 0.02])
@pytest.mark.parametrize("rnnt_type", TYPES)
@pytest.mark.parametrize("backend", ["k2", "torch"])
def test_equals_k2s_five_functions(backend, rnnt_type, penalty):
    import k2

    inputs = Inputs(counts=(6, 4, 2), lengths=(14, 9, 5), vocab=7)
    simple, pruned = inputs.losses(
        backend=backend, rnnt_type=rnnt_type, delay_penalty=penalty, prune_range=4
    )
    boundary = torch.zeros(3, 4, dtype=torch.int64)
    boundary[:, 2], boundary[:, 3] = inputs.counts, inputs.lengths
    common = dict(
        termination_symbol=0, boundary=boundary, rnnt_type=rnnt_type, delay_penalty=penalty,
        reduction="none",
    )  # fmt: skip
    k2_simple, arcs = k2.rnnt_loss_smoothed(
        lm=inputs.lm, am=inputs.am, symbols=inputs.labels, lm_only_scale=0.25, am_only_scale=0.0,
        return_grad=True, **common,
    )  # fmt: skip
    ranges = k2.get_rnnt_prune_ranges(*arcs, boundary, 4)
    enc, pred = k2.do_rnnt_pruning(inputs.encoder, inputs.predictor, ranges)
    logits = inputs.output(torch.tanh(enc + pred))
    k2_pruned = k2.rnnt_loss_pruned(
        logits=logits, symbols=inputs.labels, ranges=ranges, **common
    )
    config = LossConfig(
        backend=backend, rnnt_type=rnnt_type, delay_penalty=penalty, prune_range=4
    )
    _, own = simple_loss(
        inputs.am, inputs.lm, inputs.labels, inputs.counts, inputs.lengths, config
    )
    assert torch.equal(own, ranges)
    close(simple, k2_simple, rtol=1e-5)
    close(pruned, k2_pruned, rtol=1e-5)
    tensors = inputs.tensors
    ours = grads(simple + pruned, tensors)
    for one, other in zip(ours, grads(k2_simple + k2_pruned, tensors)):
        assert (one - other).norm() <= 1e-5 * other.norm()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "counts, lengths",
    [
        ((0, 0), (4, 2)),
        ((5, 0), (3, 4)),
        ((11, 2), (2, 30)),
        ((1,), (1,)),
        ((0,), (1,)),
    ],
)
def test_cases_that_break_others(backend, counts, lengths):
    """All-empty batches, more labels than frames, one frame: right values, no infinity."""
    inputs = Inputs(counts=counts, lengths=lengths)
    simple, pruned = inputs.losses(backend=backend, prune_range=3)
    full = inputs.full(backend="torch")
    assert torch.isfinite(simple).all() and torch.isfinite(pruned).all()
    assert (pruned >= full - 1e-4).all()
    close(inputs.losses(backend=backend, prune_range=50)[1], full)
    for index, (count, frames) in enumerate(zip(counts, lengths)):
        if count == 0:  # only blanks
            hidden = torch.tanh(
                inputs.encoder[index, :frames] + inputs.predictor[index, :1]
            )
            blanks = inputs.output(hidden).log_softmax(1)[:, 0].sum()
            close(pruned[index], -blanks)
    assert all(torch.isfinite(g).all() for g in grads(simple + pruned, inputs.tensors))


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_alignment_is_infinite(backend):
    inputs = Inputs(counts=(4, 2), lengths=(2, 5))
    simple, _ = inputs.losses(backend=backend, rnnt_type="modified")
    assert simple[0] == float("inf") and torch.isfinite(simple[1])


def test_the_range_is_raised_where_it_cannot_cover():
    one = lambda count, frames: (torch.tensor([count]), torch.tensor([frames]))
    assert covering_range(3, *one(10, 2), regular=True) == 6
    assert covering_range(5, *one(10, 200), regular=True) == 5
    assert covering_range(1, *one(0, 3), regular=True) == 2
    for count, frames in product(range(20), range(1, 8)):
        width = covering_range(2, *one(count, frames), regular=True)
        assert (width - 1) * frames >= count
        assert width == 2 or (width - 2) * frames < count


def test_one_token_is_blank_alone():
    """V = 1: nothing but blank can be said, with certainty."""
    inputs = Inputs(counts=(0, 0), lengths=(4, 2), vocab=2)
    inputs.output = nn.Linear(6, 1)
    inputs.am, inputs.lm = torch.randn(2, 4, 1), torch.randn(2, 1, 1)
    for loss in inputs.losses():
        close(loss, torch.zeros(2))


@pytest.mark.parametrize("backend", BACKENDS)
def test_delay_penalty_is_its_definition(backend):
    """p ((T' - 1) / 2 - t) on every label emitted at frame t."""
    inputs = Inputs(counts=(2, 1), lengths=(4, 3))
    penalty = 0.3
    hidden = torch.tanh(inputs.encoder[:, :, None] + inputs.predictor[:, None])
    loss = inputs.full(backend=backend, delay_penalty=penalty)
    for index, (count, frames) in enumerate(((2, 4), (1, 3))):
        log_probs = (
            inputs.output(hidden)[index, :frames, : count + 1].log_softmax(2).clone()
        )
        for t in range(frames):
            log_probs[t, :, 1:] = log_probs[t, :, 1:] + penalty * ((frames - 1) / 2 - t)
        close(
            loss[index],
            by_enumeration(log_probs, inputs.labels[index, :count].tolist()),
        )


@pytest.mark.parametrize("rnnt_type", TYPES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_fast_emit_raises_the_gradient_of_labels_alone(backend, rnnt_type):
    """The value stays; a label's log-probability, wherever it stands, gets 1 + share as much."""
    inputs = Inputs(counts=(3, 2), lengths=(6, 4))
    batch, frames, positions, vocab = 2, 6, 4, 9
    log_probs = torch.randn(batch, frames, positions, vocab).log_softmax(3)
    log_probs.requires_grad_()
    # log-probabilities are their own logits; labels differ from blank, so they can be told apart
    found = []
    for share in (0.0, 0.5):
        config = LossConfig(backend=backend, rnnt_type=rnnt_type, fast_emit=share)
        px = log_probs[:, :, :-1].gather(
            3, inputs.labels[:, None, :, None].expand(-1, frames, -1, 1)
        )
        px, py = px.squeeze(3).transpose(1, 2), log_probs[..., 0].transpose(1, 2)
        px, py = arcs.close(arcs.raise_gradient(px, share), py, inputs.lengths, config)
        total = lattice.total_score(px, py, inputs.counts, inputs.lengths, backend)
        found.append((total, torch.autograd.grad(total.sum(), log_probs)[0]))
    (plain_total, plain), (total, raised) = found
    assert torch.equal(plain_total, total)
    close(raised[..., 0], plain[..., 0])
    close(raised[..., 1:], 1.5 * plain[..., 1:])
    assert plain[..., 1:].abs().sum() > 1


def test_fast_emit_reaches_the_losses():
    inputs = Inputs()
    plain, raised = (inputs.losses(fast_emit=share)[1] for share in (0.0, 0.5))
    assert torch.equal(plain, raised)
    bias = inputs.output.bias
    before, after = (grads(loss, [bias])[0] for loss in (plain, raised))
    # a frame's blank leaves it once, so labels alone have more to say
    assert (after - before).norm() > 0.01 * before.norm()
    before, after = (
        grads(inputs.full(fast_emit=share), [bias])[0] for share in (0.0, 0.5)
    )
    assert (after - before).norm() > 0.01 * before.norm()


def test_float32_inside_autocast():
    """With what an autocast model hands over: bfloat16 inputs and float32 weights."""
    inputs = Inputs()
    for name in ("am", "lm", "encoder", "predictor"):
        rounded = getattr(inputs, name).detach().bfloat16().requires_grad_()
        setattr(inputs, name, rounded)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = inputs.losses()
    found = grads(sum(got), inputs.tensors)
    for name in ("am", "lm", "encoder", "predictor"):
        setattr(inputs, name, getattr(inputs, name).detach().float().requires_grad_())
    expected = inputs.losses()
    assert got[0].dtype == got[1].dtype == torch.float32
    close(got, expected, rtol=1e-6)
    for one, other in zip(found, grads(sum(expected), inputs.tensors)):
        close(one.float(), other, rtol=1e-2, atol=1e-3)  # handed back in bfloat16


def test_scales_over_time():
    config = LossConfig(warm_steps=10, ctc_scale=0.7, ctc_scale_end=0.3)
    assert [config.pruned_scale(s) for s in (0, 9, 10, 19, 20)] == [0, 0, 0.1, 0.1, 1]
    assert config.ctc_scale_at(0) == 0.7 and abs(config.ctc_scale_at(0.5) - 0.5) < 1e-9
    assert abs(config.ctc_scale_at(2.0) - 0.3) < 1e-9


def test_equals_torchaudio():
    functional = pytest.importorskip("torchaudio.functional")
    inputs = Inputs(counts=(6, 4, 2), lengths=(14, 9, 5))
    hidden = torch.tanh(inputs.encoder[:, :, None] + inputs.predictor[:, None])
    logits = inputs.output(hidden)
    expected = functional.rnnt_loss(
        logits,
        inputs.labels.int(),
        inputs.lengths.int(),
        inputs.counts.int(),
        blank=0,
        reduction="none",
    )
    close(inputs.full(backend="torch"), expected)

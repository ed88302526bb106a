"""The losses against a lattice in plain loops, and against each other."""

from itertools import product

import pytest
import torch

from icefall_attn.rnnt import k2_backend
from icefall_attn.rnnt.config import LossConfig
from icefall_attn.rnnt.pruned import gather_labels, pruned_transducer_loss

pytestmark = pytest.mark.skipif(not k2_backend.available(), reason="k2 is not installed")


def by_enumeration(log_probs, labels):
    """-log of the sum over all alignments of one utterance, ``(T, U + 1, V)``, one by one."""
    frames, positions, _ = log_probs.shape
    scores = []
    # an alignment is the frame at which each label is emitted, never going back
    for emitted in product(range(frames), repeat=positions - 1):
        if list(emitted) != sorted(emitted):
            continue
        score, u = log_probs.new_zeros(()), 0
        for t in range(frames):
            while u < len(emitted) and emitted[u] == t:
                score = score + log_probs[t, u, labels[u]]
                u += 1
            score = score + log_probs[t, u, 0]
        scores.append(score)
    return -torch.logsumexp(torch.stack(scores), dim=0)


def simple_joiner(encoder, predictor):
    """A joiner without parameters, for logits ``encoder + predictor``."""
    return encoder + predictor


CASES = [(t, u) for t in (1, 2, 3, 4) for u in (1, 2, 3, 4) if u <= t]


@pytest.mark.parametrize("frames, count", CASES)
def test_pruned_loss_of_a_wide_range_is_the_sum_over_alignments(frames, count):
    vocab = 5
    encoder = torch.randn(1, frames, vocab, requires_grad=True)
    predictor = torch.randn(1, count + 1, vocab, requires_grad=True)
    labels = torch.randint(1, vocab, (1, count))
    simple, pruned = pruned_transducer_loss(
        simple_encoder=encoder,
        simple_predictor=predictor,
        encoder=encoder,
        predictor=predictor,
        joiner=simple_joiner,
        labels=labels,
        label_lengths=torch.tensor([count]),
        lengths=torch.tensor([frames]),
        config=LossConfig(prune_range=count + 5, lm_scale=0.0),
    )
    logits = encoder[0, :, None] + predictor[0, None]
    expected = by_enumeration(logits.double().log_softmax(dim=2), labels[0].tolist())
    torch.testing.assert_close(pruned[0].double(), expected, rtol=1e-5, atol=1e-5)
    # without smoothing the simple joiner is the same model
    torch.testing.assert_close(simple[0].double(), expected, rtol=1e-5, atol=1e-5)
    inputs = (encoder, predictor)
    for loss in (pruned, simple):
        grads = torch.autograd.grad(loss.sum(), inputs, retain_graph=True)
        wanted = torch.autograd.grad(expected, inputs, retain_graph=True)
        torch.testing.assert_close(grads, wanted, rtol=1e-4, atol=1e-5)


def ragged():
    lengths, counts = torch.tensor([12, 7, 5]), torch.tensor([6, 7, 1])
    encoder = torch.randn(3, 12, 8, requires_grad=True)
    predictor = torch.randn(3, 8, 8, requires_grad=True)
    labels = torch.randint(1, 8, (3, 7))
    return encoder, predictor, labels, counts, lengths


def loss_of(encoder, predictor, labels, counts, lengths, **options):
    return pruned_transducer_loss(
        simple_encoder=encoder,
        simple_predictor=predictor,
        encoder=encoder,
        predictor=predictor,
        joiner=simple_joiner,
        labels=labels,
        label_lengths=counts,
        lengths=lengths,
        config=LossConfig(**options),
    )


def test_full_range_equals_k2s_unpruned_loss():
    encoder, predictor, labels, counts, lengths = ragged()
    _, pruned = loss_of(encoder, predictor, labels, counts, lengths, prune_range=8)
    boundary = k2_backend.make_boundary(counts, lengths)
    logits = encoder[:, :, None] + predictor[:, None]
    full = k2_backend.full_loss(logits, labels, boundary, LossConfig())
    torch.testing.assert_close(pruned, full, rtol=1e-5, atol=1e-5)
    inputs = (encoder, predictor)
    torch.testing.assert_close(
        torch.autograd.grad(pruned.sum(), inputs, retain_graph=True),
        torch.autograd.grad(full.sum(), inputs),
        rtol=1e-4,
        atol=1e-5,
    )


@pytest.mark.parametrize("prune_range", [2, 3, 5])
def test_pruning_only_takes_paths_away(prune_range):
    _, pruned = loss_of(*ragged(), prune_range=prune_range)
    torch.manual_seed(1234)
    _, full = loss_of(*ragged(), prune_range=8)
    assert torch.isfinite(pruned).all()
    assert (pruned >= full - 1e-4).all() and (pruned > full + 1e-6).any()


@pytest.mark.parametrize("prune_range", [2, 5, 8])
def test_losses_do_not_depend_on_padding(prune_range):
    encoder, predictor, labels, counts, lengths = ragged()
    together = loss_of(encoder, predictor, labels, counts, lengths, prune_range=prune_range)
    for row, (frames, count) in enumerate(zip(lengths.tolist(), counts.tolist())):
        alone = loss_of(
            encoder[row : row + 1, :frames],
            predictor[row : row + 1, : count + 1],
            labels[row : row + 1, :count],
            counts[row : row + 1],
            lengths[row : row + 1],
            prune_range=prune_range,
        )
        for one, other in zip(together, alone):
            torch.testing.assert_close(one[row], other[0], rtol=1e-5, atol=1e-5)


def test_padding_labels_may_hold_anything():
    encoder, predictor, labels, counts, lengths = ragged()
    expected = loss_of(encoder, predictor, labels, counts, lengths)
    labels[2, 1:] = -100
    got = loss_of(encoder, predictor, labels, counts, lengths)
    torch.testing.assert_close(got, expected)


def test_gather_labels_is_indexing():
    predictor = torch.randn(2, 5, 3, requires_grad=True)
    ranges = torch.tensor([[[0, 1], [1, 2], [3, 4]], [[0, 1], [0, 1], [2, 3]]])
    got = gather_labels(predictor, ranges)
    for b, t, r in product(range(2), range(3), range(2)):
        assert torch.equal(got[b, t, r], predictor[b, ranges[b, t, r]])
    got.sum().backward()
    uses = torch.zeros(2, 5)
    for b in range(2):
        uses[b] = torch.bincount(ranges[b].flatten(), minlength=5).float()
    torch.testing.assert_close(predictor.grad, uses[..., None].expand(2, 5, 3))


def test_float32_inside_autocast():
    encoder, predictor, labels, counts, lengths = ragged()
    expected = loss_of(encoder, predictor, labels, counts, lengths)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = loss_of(encoder, predictor, labels, counts, lengths)
    assert got[1].dtype == torch.float32
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-3)


def test_scales_over_time():
    config = LossConfig(warm_steps=10, ctc_scale=0.7, ctc_scale_end=0.3)
    assert [config.pruned_scale(s) for s in (0, 9, 10, 19, 20)] == [0, 0, 0.1, 0.1, 1]
    assert config.ctc_scale_at(0) == 0.7 and abs(config.ctc_scale_at(0.5) - 0.5) < 1e-9
    assert abs(config.ctc_scale_at(2.0) - 0.3) < 1e-9

"""What every mechanism must satisfy in every context, inside the encoder."""

import pytest
import torch
from encoder.small import CONTEXTS, STREAMABLE, make_encoder

every_kind = pytest.mark.parametrize("kind", STREAMABLE)
every_context = pytest.mark.parametrize("context", list(CONTEXTS))


@every_context
@every_kind
@pytest.mark.parametrize("norm", ["layer", "batch"])
def test_padding_changes_nothing(kind, context, norm):
    """Values and gradients, whatever padding holds; the order of the batch neither."""
    encoder = make_encoder(kind, context, conv_norm=norm)
    lengths = [61, 30, 45, 7]
    x = torch.randn(4, 70, 8, dtype=torch.float64)
    for row, length, garbage in zip(x, lengths, (1e3, float("nan"), float("inf"), 1.0)):
        row[length:] = garbage
    out, frames = encoder(x, torch.tensor(lengths))
    total = 0.0
    for row, length in enumerate(lengths):
        alone, own = encoder(x[row : row + 1, :length], torch.tensor([length]))
        assert int(own) == int(frames[row])
        torch.testing.assert_close(out[row, : int(own)], alone[0])
        assert not out[row, int(own) :].any()
        total = total + alone.pow(2).sum()
    grads = gradients(encoder, out.pow(2).sum()), gradients(encoder, total)
    for one, other in zip(*grads):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-8)
    order = torch.tensor([2, 0, 3, 1])
    again, _ = encoder(x[order], torch.tensor(lengths)[order])
    torch.testing.assert_close(again, out[order])


@every_context
@every_kind
def test_tiny_lengths_stay_finite(kind, context):
    encoder = make_encoder(kind, context, conv_norm="batch").train()
    x = torch.randn(4, 30, 8, dtype=torch.float64)
    for lengths in ([0, 0, 0, 0], [0, 7, 11, 30], [3, 6, 7, 8]):
        out, _, distance = encoder.layers(x, torch.tensor(lengths), [])
        total = out[-1].pow(2).sum()
        total = total if distance is None else total + distance.sum()
        assert torch.isfinite(out[-1]).all()
        assert all(torch.isfinite(g).all() for g in gradients(encoder, total))


@every_context
@every_kind
def test_half_precision_stays_finite(kind, context):
    encoder = make_encoder(kind, context).to(torch.bfloat16)
    x = torch.randn(2, 60, 8).to(torch.bfloat16)
    out, _ = encoder(x, torch.tensor([60, 0]))
    assert torch.isfinite(out).all() and out.any()
    state = encoder.init_stream(2)
    stepped, _, _ = encoder.step(
        x, torch.tensor([60, 0]), state, torch.tensor([True, True])
    )
    torch.testing.assert_close(stepped, out, rtol=0.2, atol=0.2)


@pytest.mark.parametrize("how", ["script", "trace"])
@pytest.mark.parametrize("kind", ["full", "rel_pos", "cosformer", "lmla"])
@pytest.mark.parametrize("context", ["causal", "rsa-back", "chunk", "csa", "dcn"])
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_scripted_and_traced_encoders_agree(kind, context, how):
    """On other sizes than they were traced with."""
    encoder = make_encoder(kind, context, layers=1)
    x, lengths = torch.randn(3, 70, 8, dtype=torch.float64), torch.tensor([20, 70, 41])
    if how == "script":
        module = torch.jit.script(encoder)
    else:
        example = torch.randn(2, 50, 8, dtype=torch.float64), torch.tensor([50, 30])
        module = torch.jit.trace(encoder, example, check_trace=False)
    torch.testing.assert_close(module(x, lengths), encoder(x, lengths))


def gradients(module, loss):
    grads = torch.autograd.grad(loss, list(module.parameters()), allow_unused=True)
    return [g if g is not None else torch.zeros(()) for g in grads]

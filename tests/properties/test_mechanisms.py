"""What every registered attention mechanism must satisfy, alone and inside the encoder."""

import pytest
import torch

from icefall_attn.attention import (
    MECHANISMS,
    AttentionConfig,
    AttentionContext,
    make_attention,
    make_shared,
)
from icefall_attn.attention.contexts import CAUSAL, ContextConfig
from icefall_attn.attention.masking import visible_bias
from icefall_attn.encoder.conformer import Conformer, ConformerConfig
from icefall_attn.nn.lengths import valid_mask
from icefall_attn.nn.positions import AbsolutePositions

DIM, HEADS = 8, 2
pytestmark = pytest.mark.parametrize("kind", list(MECHANISMS))


def make_context(kind, lengths, frames, dtype=torch.float64):
    shared = make_shared(AttentionConfig(kind=kind), DIM)
    valid = valid_mask(lengths, frames)
    return AttentionContext(valid, visible_bias(valid, dtype), shared(frames))


def causal_context(attention, lengths, frames):
    valid = valid_mask(torch.tensor(lengths), frames)
    bias = visible_bias(valid, torch.float64, CAUSAL)
    return AttentionContext(valid, bias, make_shared(attention, DIM)(frames), CAUSAL)


def make_module(kind):
    torch.manual_seed(0)
    return make_attention(AttentionConfig(kind=kind), DIM, HEADS, 0.0, 0).double()


def causal_options(kind):
    """The mechanism and its options for a causal context, or None if it cannot have one."""
    attention = AttentionConfig(kind=kind)
    if hasattr(getattr(attention, kind, None), "period"):
        getattr(attention, kind).period = 50
    try:
        ConformerConfig(attention=attention, context=ContextConfig("causal"))
    except ValueError:
        return None
    return attention


def make_encoder(kind, norm="layer", layers=2):
    torch.manual_seed(0)
    config = ConformerConfig(
        dim=DIM,
        heads=HEADS,
        num_layers=layers,
        feed_forward_dim=16,
        kernel_size=5,
        conv_norm=norm,
        subsampling_channels=4,
        attention=AttentionConfig(kind=kind),
    )
    return Conformer(config).double()


@pytest.mark.parametrize("norm", ["layer", "batch"])
@pytest.mark.parametrize("garbage", [1e3, float("nan"), float("inf")])
def test_padding_changes_nothing(kind, norm, garbage):
    encoder = make_encoder(kind, norm).eval()
    lengths = [61, 30, 45]
    x = torch.randn(3, 70, 80, dtype=torch.float64)
    for row, length in zip(x, lengths):
        row[length:] = garbage
    out, out_lengths = encoder(x, torch.tensor(lengths))
    batch_grads = _gradients(encoder, out.pow(2).sum())
    total = 0.0
    for row, length in enumerate(lengths):
        alone, alone_length = encoder(x[row : row + 1, :length], torch.tensor([length]))
        frames = int(alone_length)
        assert frames == int(out_lengths[row])
        torch.testing.assert_close(out[row, :frames], alone[0])
        assert out[row, frames:].abs().sum() == 0
        total = total + alone.pow(2).sum()
    for one, other in zip(batch_grads, _gradients(encoder, total)):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-8)


def test_order_of_the_batch_changes_nothing(kind):
    encoder = make_encoder(kind).eval()
    x = torch.randn(4, 50, 80, dtype=torch.float64)
    lengths = torch.tensor([50, 20, 35, 8])
    out, _ = encoder(x, lengths)
    order = torch.tensor([2, 0, 3, 1])
    torch.testing.assert_close(encoder(x[order], lengths[order])[0], out[order])


def test_tiny_lengths_stay_finite(kind):
    encoder = make_encoder(kind, "batch").train()
    x = torch.randn(4, 40, 80, dtype=torch.float64)
    for lengths in ([0, 0, 0, 0], [0, 7, 11, 40], [3, 6, 7, 8]):
        with torch.autograd.detect_anomaly():
            out, _ = encoder(x, torch.tensor(lengths))
            grads = _gradients(encoder, out.pow(2).sum())
        assert torch.isfinite(out).all()
        assert all(torch.isfinite(g).all() for g in grads)


@pytest.mark.parametrize("norm", ["layer", "batch"])
@pytest.mark.parametrize("how", ["script", "trace"])
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_scripted_and_traced_models_agree(kind, norm, how):
    """On other sizes than they were traced with."""
    encoder = make_encoder(kind, norm).eval()
    if how == "script":
        module = torch.jit.script(encoder)
    else:
        example = torch.randn(2, 50, 80, dtype=torch.float64), torch.tensor([50, 30])
        module = torch.jit.trace(encoder, example)
    x, lengths = torch.randn(3, 70, 80, dtype=torch.float64), torch.tensor([20, 70, 41])
    for one, other in zip(module(x, lengths), encoder(x, lengths)):
        torch.testing.assert_close(one, other)


def test_half_precision_masks_stay_finite(kind):
    module = make_module(kind).to(torch.bfloat16)
    valid = valid_mask(torch.tensor([5, 0, 2]), 5)
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        assert torch.isfinite(visible_bias(valid, dtype)).all()
    shared = make_shared(AttentionConfig(kind=kind), DIM)(5)
    context = AttentionContext(valid, visible_bias(valid, torch.bfloat16), shared)
    out = module(torch.randn(3, 5, DIM).to(torch.bfloat16), context)
    assert torch.isfinite(out).all()


def can_multiply(dtype):
    """Whether torch has products of matrices in a precision here; that of k2 lacks float16 on the CPU."""
    try:
        torch.ones(2, 2, dtype=dtype) @ torch.ones(2, 2, dtype=dtype)
    except RuntimeError:
        return False
    return True


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_thousands_of_frames_in_half_precision(kind, dtype):
    if not can_multiply(dtype):
        pytest.skip(f"this torch has no {dtype} products on the CPU")
    attention = AttentionConfig(kind=kind)
    attention.lmla.max_length = 4000
    module = make_attention(attention, DIM, HEADS, 0.0, 0).to(dtype)
    shared = make_shared(attention, DIM).to(dtype)
    valid = torch.ones(1, 4000, dtype=torch.bool)
    bias = visible_bias(valid, dtype)
    x = 5 * torch.randn(1, 4000, DIM).to(dtype)
    with torch.no_grad():
        out = module(x, AttentionContext(valid, bias, shared(4000)))
    assert torch.isfinite(out).all() and out.float().std() > 0.01


def test_every_frame_counts(kind):
    """The counterpart of the tests above: what should matter does."""
    encoder = make_encoder(kind, layers=1).eval()
    x = torch.randn(1, 40, 80, dtype=torch.float64)
    out, _ = encoder(x, torch.tensor([40]))
    changed = x.clone()
    changed[0, 1] += torch.randn(80, dtype=torch.float64)
    moved = (encoder(changed, torch.tensor([40]))[0] - out).abs().amax(dim=2)[0]
    assert (moved > 0).all()


def test_causal_frames_see_their_past_alone(kind):
    """Frame i is what it would be at the end of its prefix, and its past does matter."""
    attention = causal_options(kind)
    if attention is None:
        pytest.skip(f"{kind} refuses a causal context")
    torch.manual_seed(0)
    module = make_attention(attention, DIM, HEADS, 0.0, 0).double()
    x = torch.randn(2, 7, DIM, dtype=torch.float64)
    out = module(x, causal_context(attention, [7, 4], 7))
    for row, length in enumerate((7, 4)):
        for n in range(1, length + 1):
            prefix = module(x[row : row + 1, :n], causal_context(attention, [n], n))
            torch.testing.assert_close(out[row, n - 1], prefix[0, -1])
    changed = x.clone()
    changed[0, 0] += torch.randn(DIM, dtype=torch.float64)
    moved = module(changed, causal_context(attention, [7, 4], 7)) - out
    assert (moved[0].abs().amax(dim=1) > 0).all()


def test_order_in_time_matters(kind):
    """No mechanism may be blind to positions, together with what the encoder adds for it."""
    module = make_module(kind)
    positions = (
        AbsolutePositions(DIM, 0.0) if MECHANISMS[kind].uses_input_positions else None
    )
    context = make_context(kind, torch.tensor([6]), 6)
    x = torch.randn(1, 6, DIM, dtype=torch.float64)
    order = torch.tensor([1, 0, 2, 3, 4, 5])
    add = positions if positions is not None else torch.nn.Identity()
    swapped = module(add(x[:, order]), context)
    assert (swapped - module(add(x), context)[:, order]).abs().max() > 1e-4


@pytest.mark.parametrize("option", ["auto", "absolute", "none"])
def test_positions_at_the_input(kind, option):
    """`auto` is what the mechanism asks for; the others are taken at their word."""
    torch.manual_seed(0)
    sizes = dict(dim=DIM, heads=HEADS, num_layers=1, subsampling_channels=4)
    attention = AttentionConfig(kind=kind)
    encoder = Conformer(
        ConformerConfig(**sizes, attention=attention, input_positions=option)
    )
    asked = option == "absolute" or (
        option == "auto" and MECHANISMS[kind].uses_input_positions
    )
    assert asked == any(isinstance(m, AbsolutePositions) for m in encoder.modules())


def _gradients(module, loss):
    grads = torch.autograd.grad(loss, list(module.parameters()), allow_unused=True)
    return [g if g is not None else torch.zeros(()) for g in grads]


def test_weights_are_dropped_in_training(kind):
    """Where a mechanism makes weights, by any of its ways; linear ones make them if they are told to."""
    torch.manual_seed(0)
    attention = AttentionConfig(kind=kind)
    if hasattr(getattr(attention, kind, None), "product"):
        getattr(attention, kind).product = "left"
    attention.prob_sparse.r_sparse = 1.0  # so that nothing else is random
    module = make_attention(attention, DIM, HEADS, 0.5, 0).double()
    plain = make_attention(attention, DIM, HEADS, 0.0, 0).double()
    plain.load_state_dict(module.state_dict())
    x, lengths = torch.randn(1, 30, DIM).double(), torch.tensor([30])
    context = make_context(kind, lengths, 30)
    valid = torch.ones(1, 30, dtype=torch.bool)
    # a mechanism may have another way where nothing is masked
    for bias in (context.bias, visible_bias(valid, torch.float64), None):
        shown = context._replace(bias=bias)
        first, second = module.train()(x, shown), module(x, shown)
        assert not torch.allclose(first, second)
        exact = plain.train()(x, shown)
        torch.testing.assert_close(exact, module.eval()(x, shown))
        assert not torch.allclose(first, exact)

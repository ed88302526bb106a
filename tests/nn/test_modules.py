"""Padding never enters convolutions, statistics or means; dropout can be held back."""

import pytest
import torch
from torch import nn

from icefall_attn.nn.convolution import ConvolutionModule
from icefall_attn.nn.dropout import Dropout, MaskPool, begin_step
from icefall_attn.nn.lengths import valid_mask
from icefall_attn.nn.normalize import FeatureNorm, FrameNorm, MaskedBatchNorm


def test_batch_norm_is_that_of_the_valid_frames_alone():
    lengths = torch.tensor([3, 5, 1])
    x = torch.randn(3, 5, 4).double()
    valid = valid_mask(lengths, 5)
    x[~valid] = 1e3
    norm, plain = MaskedBatchNorm(4).double(), nn.BatchNorm1d(4).double()
    for _ in range(3):
        out = norm(x, valid)
        expected = plain(x[valid])
    torch.testing.assert_close(out[valid], expected)
    torch.testing.assert_close(dict(norm.state_dict()), dict(plain.state_dict()))
    norm.eval(), plain.eval()
    torch.testing.assert_close(norm(x, valid)[valid], plain(x[valid]))


def test_batch_norm_of_a_single_frame_uses_what_was_learned():
    norm = MaskedBatchNorm(4)
    valid = valid_mask(torch.tensor([1]), 2)
    out = norm(torch.randn(1, 2, 4), valid)
    assert torch.isfinite(out).all() and norm.training
    assert norm.running_mean.tolist() == [0.0] * 4


@pytest.mark.parametrize("norm", [MaskedBatchNorm, FrameNorm])
@pytest.mark.parametrize("causal", [False, True])
def test_convolution_ignores_what_padding_holds(norm, causal):
    module = ConvolutionModule(6, 5, norm(6), 0.0, causal).double().train()
    lengths = torch.tensor([4, 7])
    valid = valid_mask(lengths, 7)
    x = torch.randn(2, 7, 6).double()
    garbage = torch.where(valid[..., None], x, torch.full_like(x, 1e3))
    torch.testing.assert_close(module(garbage, valid)[valid], module(x, valid)[valid])


def test_depthwise_is_conv1d():
    module = ConvolutionModule(6, 5, FrameNorm(6), 0.0).double()
    x = torch.randn(2, 7, 6).double()
    expected = module.depthwise(x.transpose(1, 2)).transpose(1, 2)
    torch.testing.assert_close(module._depthwise(x, 2), expected)


def test_a_causal_convolution_sees_the_past_alone():
    """Frame t of a 5-wide kernel: t - 4 to t, in pieces too."""
    module = ConvolutionModule(6, 5, FrameNorm(6), 0.0, causal=True).double()
    x, valid = torch.randn(1, 12, 6).double(), torch.ones(1, 12, dtype=torch.bool)
    out = module(x, valid)
    changed = x.clone()
    changed[0, 5] += torch.randn(6).double()
    moved = (module(changed, valid) - out).abs().amax(dim=2)[0] > 1e-9
    assert moved.nonzero().flatten().tolist() == [5, 6, 7, 8, 9]
    seen, outs = torch.zeros(1, 4, 6).double(), []
    for piece in x.split([1, 4, 7], dim=1):
        y, seen = module.step(piece, valid[:, : piece.size(1)], seen[:, -4:])
        outs.append(y)
    torch.testing.assert_close(torch.cat(outs, dim=1), out)


def test_a_running_mean_is_that_of_the_frames_so_far():
    """And of a hundred frames of the training speech's mean."""
    norm = FeatureNorm("running", 3).double()
    x, lengths = torch.randn(2, 6, 3).double() + 4.0, torch.tensor([4, 6])
    x[0, 4:] = float("nan")
    norm.train()
    norm(x, lengths)
    valid = torch.cat((x[0, :4], x[1]))
    torch.testing.assert_close(norm.mean, valid.mean(dim=0))
    norm.eval()
    out, mean = norm(x, lengths), norm.mean.clone()
    for t in range(4):
        so_far = (100 * mean + x[0, : t + 1].sum(dim=0)) / (100 + t + 1)
        torch.testing.assert_close(out[0, t], x[0, t] - so_far)
    assert torch.equal(norm.mean, mean) and out[0, 4:].abs().sum() == 0
    state, outs = norm.init_state(2), []
    for piece, count in zip(x.split([1, 3, 2], dim=1), ([1, 1], [3, 3], [0, 2])):
        y, state = norm.step(piece, torch.tensor(count), state)
        outs.append(y)
    torch.testing.assert_close(torch.cat(outs, dim=1), out)


def test_feature_norm_takes_the_mean_of_valid_frames():
    x = torch.randn(2, 6, 3)
    x[0, 4:] = float("nan")
    out = FeatureNorm("utterance")(x, torch.tensor([4, 6]))
    torch.testing.assert_close(out[0, :4], x[0, :4] - x[0, :4].mean(dim=0))
    assert out[0, 4:].abs().max() == 0


def test_dropout_is_held_back_until_it_is_made_active():
    layers = nn.Sequential(Dropout(0.5), nn.Identity()).train()
    x = torch.ones(1000)
    begin_step(layers, False)
    assert torch.equal(layers(x), x)
    begin_step(layers, True)
    assert 300 < (layers(x) == 0).sum() < 700
    assert torch.equal(layers.eval()(x), x)


@pytest.mark.parametrize("p", [0.001, 0.1, 0.15, 0.5, 0.9])
def test_dropout_keeps_the_mean(p):
    out = Dropout(p).train()(torch.ones(200_000))
    assert abs((out == 0).float().mean().item() - p) < 0.005
    assert abs(out.mean().item() - 1.0) < 0.03
    torch.testing.assert_close(
        out.unique(), torch.tensor([0.0, 1 / (1 - p)]), rtol=2e-4, atol=0
    )


def test_dropout_has_the_gradient_of_its_mask():
    x = torch.randn(50, 40, requires_grad=True)
    out = Dropout(0.3).train()(x)
    out.sum().backward()
    torch.testing.assert_close(x.grad * x, out)


def test_masks_of_a_step_are_independent_and_those_of_the_next_are_new():
    layers = nn.Sequential(Dropout(0.5))
    layer, x = layers[0], torch.ones(100_000)
    begin_step(layers, True)
    first, second = layer(x), layer(x)
    begin_step(layers, True)
    third = layer(x)
    for one, other in ((first, second), (first, third), (second, third)):
        agree = (one == other).float().mean().item()
        assert abs(agree - 0.5) < 0.01


def test_masks_in_use_survive_the_rest_of_the_step():
    """More is dropped than the pool holds; the backward pass must still see the same masks."""
    layers = nn.Sequential(Dropout(0.5))
    begin_step(layers, True)
    x = torch.ones(MaskPool.SIZE // 2, requires_grad=True)
    outs = [layers(x) for _ in range(5)]
    kept = [out.detach().clone() for out in outs]
    for out, copy in zip(outs, kept):
        (grad,) = torch.autograd.grad(out.sum(), x)
        assert torch.equal(grad, copy)
    big = torch.ones(MaskPool.SIZE)
    assert abs(layers(big).mean().item() - 1.0) < 0.01


def test_masks_follow_torchs_seed():
    layers = nn.Sequential(Dropout(0.5))
    outs = []
    for _ in range(2):
        torch.manual_seed(3)
        begin_step(layers, True)
        outs.append([layers(torch.ones(3_000_000)) for _ in range(2)])
    assert torch.equal(outs[0][0], outs[1][0]) and torch.equal(outs[0][1], outs[1][1])

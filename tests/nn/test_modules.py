"""Padding never enters convolutions, statistics or means; dropout can be held back."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from icefall_attn.nn.convolution import ConvolutionModule
from icefall_attn.nn.dropout import Dropout, set_active
from icefall_attn.nn.lengths import valid_mask
from icefall_attn.nn.normalize import FeatureNorm, MaskedBatchNorm


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


@pytest.mark.parametrize("norm", ["batch", "layer"])
def test_convolution_ignores_what_padding_holds(norm):
    module = ConvolutionModule(6, 5, norm, 0.0).double().train()
    lengths = torch.tensor([4, 7])
    valid = valid_mask(lengths, 7)
    x = torch.randn(2, 7, 6).double()
    garbage = torch.where(valid[..., None], x, torch.full_like(x, 1e3))
    torch.testing.assert_close(module(garbage, valid)[valid], module(x, valid)[valid])


def test_depthwise_is_conv1d():
    module = ConvolutionModule(6, 5, "layer", 0.0).double()
    x = torch.randn(2, 7, 6).double()
    expected = module.depthwise(x.transpose(1, 2)).transpose(1, 2)
    torch.testing.assert_close(module._depthwise(x), expected)


def test_feature_norm_takes_the_mean_of_valid_frames():
    x = torch.randn(2, 6, 3)
    x[0, 4:] = float("nan")
    out = FeatureNorm("utterance")(x, torch.tensor([4, 6]))
    torch.testing.assert_close(out[0, :4], x[0, :4] - x[0, :4].mean(dim=0))
    assert out[0, 4:].abs().max() == 0
    with pytest.raises(ValueError, match="'global'"):
        FeatureNorm("global")


def test_dropout_is_held_back_until_it_is_made_active():
    layers = nn.Sequential(Dropout(0.5), nn.Identity()).train()
    x = torch.ones(1000)
    set_active(layers, False)
    assert torch.equal(layers(x), x)
    set_active(layers, True)
    assert 300 < (layers(x) == 0).sum() < 700
    assert torch.equal(layers.eval()(x), x)


def test_dropout_keeps_the_mean():
    torch.manual_seed(0)
    out = Dropout(0.1).train()(torch.ones(200_000))
    assert abs(out.mean().item() - 1.0) < 0.01
    assert set(out.unique().tolist()) == {0.0, F.dropout(torch.ones(1000), 0.1).max().item()}

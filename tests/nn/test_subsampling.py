"""Length formula against real outputs; the CPU's products against the library's convolutions."""

import pytest
import torch

from icefall_attn.nn.lengths import subsampled, valid_mask
from icefall_attn.nn.subsampling import ConvSubsampling


@pytest.fixture(scope="module")
def layers():
    return ConvSubsampling(80, 4, 6).double().eval()


def test_lengths_are_those_of_real_outputs(layers):
    for frames in range(1, 201):
        out, lengths = layers(
            torch.randn(1, frames, 80).double(), torch.tensor([frames])
        )
        if frames < 7:
            assert lengths.item() == 0
        else:
            assert lengths.item() == out.size(1) == subsampled(frames)


def test_a_length_does_not_depend_on_the_rest_of_the_batch(layers):
    for others in ([288], [363, 288], [288, 288]):
        x = torch.zeros(len(others), max(others), 80).double()
        _, lengths = layers(x, torch.tensor(others))
        assert lengths[-1].item() == 71


def test_output_t_sees_input_4t_to_4t_plus_6(layers):
    x = torch.randn(1, 60, 80).double()
    out, _ = layers(x, torch.tensor([60]))
    for frame in range(60):
        changed = x.clone()
        changed[:, frame] += torch.randn(80).double()
        moved = (layers(changed, torch.tensor([60]))[0] - out).abs().amax(dim=2)[0] > 0
        expected = [4 * t <= frame <= 4 * t + 6 for t in range(out.size(1))]
        assert moved.tolist() == expected


@pytest.mark.parametrize("bins", [80, 83, 9])
@pytest.mark.parametrize("frames", [7, 8, 9, 10, 13, 50])
def test_products_equal_convolutions(frames, bins):
    layers = ConvSubsampling(bins, 5, 6).double()
    x = torch.randn(3, frames, bins).double()
    weights = torch.randn_like(layers._convolutions(x))
    parameters = list(layers.conv1.parameters()) + list(layers.conv2.parameters())
    results = []
    for form in (layers._products, layers._convolutions):
        out = form(x)
        results.append((out, torch.autograd.grad((out * weights).sum(), parameters)))
    (out, grads), (expected, expected_grads) = results
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(grads, expected_grads)


def test_wide_layers_take_the_products_and_agree(monkeypatch):
    layers = ConvSubsampling(80, ConvSubsampling.WIDE, 6)
    x, lengths = torch.randn(2, 40, 80), torch.tensor([40, 40])
    out, _ = layers(x, lengths)
    monkeypatch.setattr(ConvSubsampling, "WIDE", 10_000)
    torch.testing.assert_close(layers(x, lengths)[0], out, rtol=1e-4, atol=1e-5)


def test_valid_mask():
    mask = valid_mask(torch.tensor([0, 2, 3]), 3)
    assert mask.tolist() == [[False] * 3, [True, True, False], [True] * 3]

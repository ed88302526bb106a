"""Features of a stream equal those of the whole, whatever the pieces."""

import pytest
import torch

from icefall_attn.data.features import compute_features
from icefall_attn.data.streaming import WINDOW, StreamingFbank
from icefall_attn.errors import UserError


def stream(samples, sizes):
    """Features, piece by piece, and the most that was kept."""
    fbank, found, most, begin = StreamingFbank(), [], 0, 0
    while begin < len(samples):
        size = next(sizes)
        found.append(fbank.accept(samples[begin : begin + size]))
        begin += size
        kept = 0 if fbank._context is None else fbank._context.size(1)
        most = max(most, kept + len(fbank._pending))
    return torch.cat([*found, fbank.finish()]), most


def always(size):
    while True:
        yield size


def dice():
    generator = torch.Generator().manual_seed(0)
    while True:
        yield int(torch.randint(0, 3000, (), generator=generator))


@pytest.mark.parametrize("size", [16, 160, 333, 1600, 10**6, "random"])
@pytest.mark.parametrize(
    "length", [140, 159, 160, 239, 240, 399, 400, 401, 800, 4321, 16000]
)
def test_any_pieces(size, length):
    samples = torch.randn(length, generator=torch.Generator().manual_seed(length)) / 9
    found, most = stream(samples, dice() if size == "random" else always(size))
    expected = compute_features(samples)
    assert found.shape == expected.shape
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert most < 2 * WINDOW or size not in (16, 160, 333)


def test_frames_come_as_soon_as_they_can():
    """A frame needs nothing after its window, and the last one only the end."""
    fbank = StreamingFbank()
    count = 0
    for received in range(160, 16001, 160):
        count += len(fbank.accept(torch.zeros(160)))
        whole_windows = (received + 120 - WINDOW) // 160 + 1
        assert count == (0 if received < WINDOW else whole_windows)
    assert count == 99 and len(fbank.finish()) == 1


@pytest.mark.parametrize("length", [0, 1, 79, 100, 139])
def test_too_short_for_a_frame(length):
    found, _ = stream(torch.ones(length), always(50))
    assert found.shape == (0, 80)


def test_other_kinds_do_not_stream():
    with pytest.raises(
        UserError, match="features=fbank_pitch need the whole utterance"
    ):
        StreamingFbank("fbank_pitch")

"""Two 3x3 convolutions of stride 2 that turn 10 ms frames into 40 ms frames."""

from typing import Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from icefall_attn.nn.lengths import subsampled


class ConvSubsampling(nn.Module):
    """``(B, T, F)`` features to ``(B, T', D)``, ``T' = ((T - 1) // 2 - 1) // 2``.

    No padding in time: output frame t sees the input frames 4t to 4t + 6 and nothing else, so
    that what lies beyond an utterance's end never reaches its valid frames.

    On a CPU wide layers run as matrix products (`_FrontEnd`), faster than the library's
    convolutions and without keeping the first one's large output for the backward pass;
    narrow ones, other devices and scripted or traced models take `conv2d`.
    """

    WIDE = 64  # channels

    def __init__(self, feature_dim: int, channels: int, dim: int):
        super().__init__()
        if feature_dim < 7:
            raise ValueError(f"feature_dim must be at least 7, not {feature_dim}")
        self.conv1 = nn.Conv2d(1, channels, kernel_size=3, stride=2)
        self.conv2 = nn.Conv2d(channels, channels, kernel_size=3, stride=2)
        self.linear = nn.Linear(subsampled(feature_dim) * channels, dim)

    def forward(self, x: Tensor, lengths: Tensor) -> Tuple[Tensor, Tensor]:
        """x: ``(B, T, F)``; lengths: ``(B,)``. Returns ``(B, T', D)`` and ``(B,)``."""
        if x.size(1) < 7:
            x = F.pad(x, (0, 0, 0, 7 - x.size(1)))
        if torch.jit.is_scripting() or torch.jit.is_tracing() or x.requires_grad:
            y = self._convolutions(x)
        elif x.device.type == "cpu" and self.conv2.out_channels >= self.WIDE:
            y = self._products(x)
        else:
            y = self._convolutions(x)
        return self.linear(y.flatten(2)), subsampled(lengths)

    def _convolutions(self, x: Tensor) -> Tensor:
        x = F.relu(self.conv2(F.relu(self.conv1(x.unsqueeze(1)))))
        return x.permute(0, 2, 3, 1)  # (B, T', F', C)

    @torch.jit.unused
    def _products(self, x: Tensor) -> Tensor:
        conv1, conv2 = self.conv1, self.conv2
        return _FrontEnd.apply(x, conv1.weight, conv1.bias, conv2.weight, conv2.bias)


class _FrontEnd(torch.autograd.Function):
    """Both convolutions and their ReLUs as matrix products, a few utterances at a time.

    The first convolution's outputs are sorted by the parity of their places. Tap (i, j) of the
    second one then meets parity class (i % 2, j % 2) moved by (i // 2, j // 2); with (b, t, f)
    flattened to rows a move is an offset, and a tap one product of contiguous rows, without a
    copy. Rows that wrap round the right or lower edge lie outside the output.

    The backward pass computes the first convolution again (9 products an output, against 2 304
    in the second at 256 channels) in place of storing it.
    """

    @staticmethod
    def forward(ctx, x: Tensor, weight1, bias1, weight2, bias2) -> Tensor:
        taps = weight2.permute(2, 3, 1, 0).contiguous()  # (3, 3, in, out)
        t_out, f_out = subsampled(x.size(1)), subsampled(x.size(2))
        out = x.new_empty(x.size(0), t_out, f_out, taps.size(3))
        for part in _parts(x, weight1.size(0)):
            rows = _first_layer(_windows(x[part]), weight1, bias1)
            y = bias2.repeat(rows.size(1), 1)
            for i, j, phase, offset in _taps(x.size(2)):
                y[: rows.size(1) - offset].addmm_(rows[phase, offset:], taps[i, j])
            out[part] = _grid(y, x[part])[:, :t_out, :f_out]
        out.relu_()
        ctx.save_for_backward(x, weight1, bias1, taps, out)
        return out

    @staticmethod
    def backward(ctx, grad: Tensor):
        x, weight1, bias1, taps, out = ctx.saved_tensors
        t_out, f_out = out.shape[1:3]
        grad_weight1, grad_bias1 = torch.zeros_like(weight1), torch.zeros_like(bias1)
        grad_taps, grad_bias2 = torch.zeros_like(taps), torch.zeros_like(taps[0, 0, 0])
        for part in _parts(x, weight1.size(0)):
            windows = _windows(x[part])
            rows = _first_layer(windows, weight1, bias1)
            grad_y = rows.new_zeros(rows.size(1), taps.size(3))
            inner = _grid(grad_y, x[part])[:, :t_out, :f_out]
            torch.mul(grad[part], out[part] > 0, out=inner)
            grad_bias2 += grad_y.sum(0)
            grad_rows = torch.zeros_like(rows)
            for i, j, phase, offset in _taps(x.size(2)):
                above = grad_y[: rows.size(1) - offset]
                grad_rows[phase, offset:].addmm_(above, taps[i, j].t())
                grad_taps[i, j].addmm_(rows[phase, offset:].t(), above)
            grad_rows.mul_(rows > 0)
            grad_rows = grad_rows.flatten(0, 1)
            grad_weight1 += (grad_rows.t() @ windows).view_as(weight1)
            grad_bias1 += grad_rows.sum(0)
        grad_weight2 = grad_taps.permute(3, 2, 0, 1)
        return None, grad_weight1, grad_bias1, grad_weight2, grad_bias2


def _half(size: int) -> int:
    """Half the outputs, rounded up, of a 3-wide convolution with stride 2."""
    return ((size - 1) // 2 + 1) // 2


def _parts(x: Tensor, channels: int):
    """Slices of the batch whose first convolution stays within the processor's caches."""
    values = 4 * _half(x.size(1)) * _half(x.size(2)) * channels
    step = max(1, 4_000_000 // values)
    return [slice(start, start + step) for start in range(0, x.size(0), step)]


def _windows(x: Tensor) -> Tensor:
    """The 3x3 patches of ``(B, T, F)`` at even places, by the parity of half their place.

    Returns ``(4 rows, 9)``, row (parity of t, parity of f, b, t // 2, f // 2). Places past an
    edge hold values that nobody reads.
    """
    batch, frames, bins = x.shape
    half_t, half_f = _half(frames), _half(bins)
    x = F.pad(x, (0, 4 * half_f + 1 - bins, 0, 4 * half_t + 1 - frames))
    windows = x.unfold(1, 3, 2).unfold(2, 3, 2)
    windows = windows.reshape(batch, half_t, 2, half_f, 2, 9)
    return windows.permute(2, 4, 0, 1, 3, 5).reshape(-1, 9)


def _first_layer(windows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """``(4, rows, C)``: ReLU of the first convolution at the four parity classes."""
    out = torch.addmm(bias, windows, weight.flatten(1).t()).relu_()
    return out.view(4, windows.size(0) // 4, -1)


def _grid(rows: Tensor, x: Tensor) -> Tensor:
    """Rows of one parity class as ``(B, T / 4, F / 4, C)``, sizes rounded up."""
    return rows.view(x.size(0), _half(x.size(1)), _half(x.size(2)), -1)


def _taps(bins: int):
    """(i, j, parity class, row offset) of the nine taps."""
    half_f = _half(bins)
    return [
        (i, j, 2 * (i % 2) + j % 2, (i // 2) * half_f + j // 2)
        for i in range(3)
        for j in range(3)
    ]

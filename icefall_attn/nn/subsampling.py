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

    The first convolution's outputs are sorted into four classes by the parity of their places,
    side by side in one wide row for every second frame and bin. Tap (i, j) of the second
    convolution then meets class (i % 2, j % 2) moved by (i // 2, j // 2); with (b, t, f)
    flattened to rows a move is an offset of rows, so that taps with equal moves are one product
    of contiguous rows (`_products_of`), without a copy. Rows that wrap round the right or lower
    edge lie outside the output.

    The backward pass computes the first convolution again (9 products an output, against 2 304
    in the second at 256 channels) in place of storing it.
    """

    @staticmethod
    def forward(ctx, x: Tensor, weight1, bias1, weight2, bias2) -> Tensor:
        t_out, f_out = subsampled(x.size(1)), subsampled(x.size(2))
        out = x.new_empty(x.size(0), t_out, f_out, weight2.size(0))
        first = torch.cat((weight1.flatten(1), bias1[:, None]), dim=1)
        products = _products_of(weight2, x.size(2))
        for part in _parts(x, weight2.size(1)):
            rows = _first_layer(_windows(x[part]), first)
            y = bias2.repeat(rows.size(0), 1)
            for offset, columns, weight, _ in products:
                y[: rows.size(0) - offset].addmm_(rows[offset:, columns], weight)
            out[part] = _grid(y, x[part])[:, :t_out, :f_out]
        out.relu_()
        ctx.save_for_backward(x, first, weight2, out)
        return out

    @staticmethod
    def backward(ctx, grad: Tensor):
        x, first, weight2, out = ctx.saved_tensors
        t_out, f_out = out.shape[1:3]
        grad = torch.ops.aten.threshold_backward(grad, out, 0.0)
        grad_bias2 = grad.sum((0, 1, 2))
        grad_first = torch.zeros_like(first)
        products = _products_of(weight2, x.size(2))
        grad_products = [torch.zeros_like(weight) for _, _, weight, _ in products]
        grad_y = grad_rows = x.new_zeros(0)
        for part in _parts(x, weight2.size(1)):
            windows = _windows(x[part])
            rows = _first_layer(windows, first)
            if grad_rows.shape != rows.shape:  # the first part, and a smaller last one
                grad_rows = torch.empty_like(rows)
                grad_y = rows.new_zeros(
                    rows.size(0), weight2.size(0)
                )  # stays 0 past edges
            _grid(grad_y, x[part])[:, :t_out, :f_out] = grad[part]
            for (offset, columns, weight, _), total in zip(products, grad_products):
                above = grad_y[: rows.size(0) - offset]
                if offset == 0:  # the first product covers all columns
                    torch.mm(above, weight.t(), out=grad_rows)
                else:
                    grad_rows[offset:, columns].addmm_(above, weight.t())
                total.addmm_(rows[offset:, columns].t(), above)
            torch.ops.aten.threshold_backward.grad_input(
                grad_rows, rows, 0.0, grad_input=grad_rows
            )
            for each, window in zip(grad_rows.chunk(4, dim=1), windows):
                grad_first.addmm_(each.t(), window)
        grad_weight2 = torch.empty_like(weight2)
        for (_, _, _, taps), total in zip(products, grad_products):
            for (i, j), tap in zip(taps, total.chunk(len(taps))):
                grad_weight2[:, :, i, j] = tap.t()
        grad_weight1 = grad_first[:, :9].reshape(-1, 1, 3, 3)
        return None, grad_weight1, grad_first[:, 9], grad_weight2, grad_bias2


def _products_of(weight: Tensor, bins: int):
    """The second convolution as products: (row offset, columns, matrix, its taps) of each."""
    half_f, channels = _half(bins), weight.size(1)
    # the classes stand in the order (even t, even f), (odd, even), (even, odd), (odd, odd)
    products = [
        (0, 0, [(0, 0), (1, 0), (0, 1), (1, 1)]),
        (1, 0, [(0, 2), (1, 2)]),
        (half_f, 0, [(2, 0)]),
        (half_f, 2, [(2, 1)]),
        (half_f + 1, 0, [(2, 2)]),
    ]
    result = []
    for offset, first, taps in products:
        columns = slice(first * channels, (first + len(taps)) * channels)
        matrix = torch.cat([weight[:, :, i, j].t() for i, j in taps])
        result.append((offset, columns, matrix, taps))
    return result


def _half(size: int) -> int:
    """Half the outputs, rounded up, of a 3-wide convolution with stride 2."""
    return ((size - 1) // 2 + 1) // 2


def _parts(x: Tensor, channels: int):
    """Slices of the batch whose first convolution stays within the processor's caches."""
    values = 4 * _half(x.size(1)) * _half(x.size(2)) * channels
    step = max(1, 4_000_000 // values)
    return [slice(start, start + step) for start in range(0, x.size(0), step)]


def _windows(x: Tensor) -> Tensor:
    """The 3x3 patches of ``(B, T, F)`` at even places, by the class of half their place.

    Returns ``(4, rows, 10)``, row (b, t // 2, f // 2); the last column is 1, for the bias.
    Places past an edge hold values that nobody reads.
    """
    batch, frames, bins = x.shape
    half_t, half_f = _half(frames), _half(bins)
    x = F.pad(x, (0, 4 * half_f + 1 - bins, 0, 4 * half_t + 1 - frames))
    windows = x.unfold(1, 3, 2).unfold(2, 3, 2)
    windows = windows.reshape(batch, half_t, 2, half_f, 2, 9)
    windows = F.pad(windows, (0, 1), value=1.0)
    return windows.permute(4, 2, 0, 1, 3, 5).reshape(4, -1, 10)


def _first_layer(windows: Tensor, weight: Tensor) -> Tensor:
    """``(rows, 4 C)``: ReLU of the first convolution, the four classes side by side."""
    channels = weight.size(0)
    out = windows.new_empty(windows.size(1), 4 * channels)
    for each, window in zip(out.chunk(4, dim=1), windows):
        torch.mm(window, weight.t(), out=each)
    return out.relu_()


def _grid(rows: Tensor, x: Tensor) -> Tensor:
    """``(B, T / 4, F / 4, C)`` of rows, sizes rounded up."""
    return rows.view(x.size(0), _half(x.size(1)), _half(x.size(2)), -1)

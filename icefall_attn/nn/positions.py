"""Sinusoidal positions: absolute ones for the encoder's input, signed distances for attention."""

import math

import torch
from torch import Tensor, nn

from icefall_attn.nn.dropout import Dropout


class Sinusoids(nn.Module):
    """Rows ``[sin(p w_0), cos(p w_0), sin(p w_1), ...]``, ``w_k = 10000^(-2k/dim)``.

    Computed in float32 even in a model of half precision, which could not tell positions above
    2048 (bfloat16: 256) apart; the frequencies are made anew each time, since a buffer
    would be rounded with the model.
    """

    def __init__(self, dim: int):
        super().__init__()
        if dim % 2 != 0:
            raise ValueError(f"sinusoidal positions need an even width, not {dim}")
        self.dim = dim
        # knows the device alone
        self.register_buffer("place", torch.empty(0), persistent=False)

    def forward(self, first: int, last: int, step: int) -> Tensor:
        """``(N, dim)`` float32 of the positions ``range(first, last, step)``."""
        place, real = self.place.device, torch.float32
        positions = torch.arange(first, last, step, device=place, dtype=real)
        exponents = torch.arange(0, self.dim, 2, device=place, dtype=real)
        frequencies = torch.exp(exponents * -(math.log(10000.0) / self.dim))
        angles = positions.unsqueeze(1) * frequencies
        return torch.stack((torch.sin(angles), torch.cos(angles)), dim=2).flatten(1)


class AbsolutePositions(nn.Module):
    """``dropout(x sqrt(D) + PE)``: absolute positions added to the encoder's input."""

    def __init__(self, dim: int, dropout: float):
        super().__init__()
        self.scale = math.sqrt(dim)
        self.dropout = Dropout(dropout)
        self.sinusoids = Sinusoids(dim)

    def forward(self, x: Tensor) -> Tensor:
        """x: ``(B, T, D)``. Returns ``(B, T, D)``."""
        table = self.sinusoids(0, x.size(1), 1).to(x.dtype)
        return self.dropout(x * self.scale + table)

    def step(self, x: Tensor, start: Tensor) -> Tensor:
        """Pieces ``(B, n, D)`` of streams whose first frames have the numbers ``start`` ``(B,)``."""
        first = int(start.min())
        table = self.sinusoids(first, int(start.max()) + x.size(1), 1).to(x.dtype)
        rows = torch.arange(x.size(1), device=x.device) + (start - first).unsqueeze(1)
        return self.dropout(x * self.scale + table[rows])

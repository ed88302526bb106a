"""Sinusoidal positions: absolute ones for the encoder's input, signed distances for attention."""

import math

import torch
from torch import Tensor, nn

from icefall_attn.nn.dropout import Dropout


def inverse_frequencies(dim: int) -> Tensor:
    """``omega_k = 10000^(-2k/dim)``, ``(dim / 2,)`` float32."""
    if dim % 2 != 0:
        raise ValueError(f"sinusoidal positions need an even width, not {dim}")
    return torch.exp(torch.arange(0, dim, 2).float() * -(math.log(10000.0) / dim))


def sinusoids(positions: Tensor, inv_freq: Tensor) -> Tensor:
    """Rows ``[sin(p w_0), cos(p w_0), sin(p w_1), ...]``.

    Args:
      positions: ``(N,)`` float32; float16 could not tell positions above 2048 apart.
      inv_freq: ``(dim / 2,)`` float32.

    Returns:
      ``(N, dim)`` float32.
    """
    angles = positions.unsqueeze(1) * inv_freq
    return torch.stack((torch.sin(angles), torch.cos(angles)), dim=2).flatten(1)


class AbsolutePositions(nn.Module):
    """``dropout(x sqrt(D) + PE)``: absolute positions added to the encoder's input."""

    def __init__(self, dim: int, dropout: float):
        super().__init__()
        self.scale = math.sqrt(dim)
        self.dropout = Dropout(dropout)
        self.register_buffer("inv_freq", inverse_frequencies(dim), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """x: ``(B, T, D)``. Returns ``(B, T, D)``."""
        positions = torch.arange(x.size(1), device=x.device, dtype=torch.float32)
        table = sinusoids(positions, self.inv_freq).to(x.dtype)
        return self.dropout(x * self.scale + table)

"""Scaled dot-product attention."""

import math

import torch
from torch import Tensor

from icefall_attn.attention.masking import attention_weights
from icefall_attn.attention.projections import Projections
from icefall_attn.attention.registry import AttentionContext, register
from icefall_attn.nn.dropout import Dropout


@register("full")
class FullAttention(Projections):
    """``softmax(Q K^T / sqrt(d_h)) V`` (Vaswani et al. 2017, eq. 1), H heads.

    It knows nothing of order by itself: the encoder adds absolute positions to its input.
    """

    uses_input_positions = True

    def __init__(
        self, dim: int, heads: int, dropout: float, config: None = None, layer: int = 0
    ):
        super().__init__(dim, heads)
        self.scale = 1.0 / math.sqrt(dim // heads)
        self.weights_dropout = Dropout(dropout)

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        """x: ``(B, T', D)``. Returns ``(B, T', D)``."""
        query, key, value = self.project(x)
        scores = torch.matmul(query * self.scale, key.transpose(2, 3))
        weights = self.weights_dropout(attention_weights(scores, context))
        return self.leave(torch.matmul(weights, value))

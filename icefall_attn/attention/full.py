"""Scaled dot-product attention."""

import math

import torch
from torch import Tensor, nn

from icefall_attn.attention.masking import attention_weights, merge_heads, split_heads
from icefall_attn.attention.registry import AttentionContext, register
from icefall_attn.nn.dropout import Dropout


@register("full")
class FullAttention(nn.Module):
    """``softmax(Q K^T / sqrt(d_h)) V`` (Vaswani et al. 2017, eq. 1), H heads.

    It knows nothing of order by itself: the encoder adds absolute positions to its input.
    """

    uses_input_positions = True

    def __init__(
        self, dim: int, heads: int, dropout: float, config: None = None, layer: int = 0
    ):
        super().__init__()
        self.heads = heads
        self.scale = 1.0 / math.sqrt(dim // heads)
        self.query = nn.Linear(dim, dim)
        self.key = nn.Linear(dim, dim)
        self.value = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, dim)
        self.weights_dropout = Dropout(dropout)

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        """x: ``(B, T', D)``. Returns ``(B, T', D)``."""
        query = split_heads(self.query(x) * self.scale, self.heads)
        key = split_heads(self.key(x), self.heads)
        value = split_heads(self.value(x), self.heads)
        scores = torch.matmul(query, key.transpose(2, 3))
        weights = self.weights_dropout(attention_weights(scores, context))
        return self.out(merge_heads(torch.matmul(weights, value)))

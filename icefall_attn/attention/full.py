"""Scaled dot-product attention."""

from torch import Tensor

from icefall_attn.attention.dot_product import DotProductAttention
from icefall_attn.attention.contexts import AttentionContext
from icefall_attn.attention.registry import register


@register("full")
class FullAttention(DotProductAttention):
    """``softmax(Q K^T / sqrt(d_h)) V`` (Vaswani et al. 2017, eq. 1), H heads.

    It knows nothing of order by itself: the encoder adds absolute positions to its input.
    """

    def __init__(
        self, dim: int, heads: int, dropout: float, config: None = None, layer: int = 0
    ):
        super().__init__(dim, heads, dropout)

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        """x: ``(B, T', D)``. Returns ``(B, T', D)``."""
        query, key, value = self.project(x)
        return self.leave(self.attend(query * self.scale, key, value, context.bias))

"""Soft-max attention over visible keys."""

import math
from typing import Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from icefall_attn.attention.projections import Projections
from icefall_attn.nn.dropout import Dropout

# `scaled_dot_product_attention` came with torch 2.0, its scale with 2.1.
_FUSED = tuple(int(n) for n in torch.__version__.split(".")[:2]) >= (2, 1)


def attention_weights(scores: Tensor, bias: Optional[Tensor]) -> Tensor:
    """``softmax(scores + bias)`` over the last dimension; ``scores`` are overwritten."""
    if bias is not None:
        scores = scores.add_(bias)
    return torch.softmax(scores, dim=-1)


class DotProductAttention(Projections):
    """Projections around ``dropout(softmax(query key^T + bias)) value``."""

    uses_input_positions = True

    def __init__(self, dim: int, heads: int, dropout: float):
        super().__init__(dim, heads)
        self.scale = 1.0 / math.sqrt(dim // heads)
        self.weights_dropout = Dropout(dropout)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, bias: Optional[Tensor]
    ) -> Tensor:
        """What the queries ``(B, H, q, d)``, scaled, take from k keys and values.

        Torch's fused kernel computes it where it has one that pays: on a GPU, and on a CPU if
        nothing is dropped.
        """
        if not (torch.jit.is_scripting() or torch.jit.is_tracing()):
            if _FUSED and self._fusible(query):
                return self._fused(query, key, value, bias)
        scores = torch.matmul(query, key.transpose(2, 3))
        weights = self.weights_dropout(attention_weights(scores, bias))
        return torch.matmul(weights, value)

    def parts(self, x: Tensor, times: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        """See `registry`."""
        query, key, value = self.project(x)
        return query * self.scale, key, value

    def scores(self, query: Tensor, key: Tensor, lead: int) -> Tensor:
        """See `registry`."""
        return torch.matmul(query, key.transpose(-2, -1))

    def weigh(self, scores: Tensor, bias: Tensor) -> Tensor:
        """See `registry`."""
        return self.weights_dropout(attention_weights(scores, bias))

    def mix(self, weights: Tensor, value: Tensor) -> Tensor:
        """See `registry`."""
        return torch.matmul(weights, value)

    def finish(self, out: Tensor) -> Tensor:
        """See `registry`."""
        return self.leave(out)

    @torch.jit.unused
    def _fusible(self, query: Tensor) -> bool:
        return query.is_cuda or not self.weights_dropout.drops()

    @torch.jit.unused
    def _fused(
        self, query: Tensor, key: Tensor, value: Tensor, bias: Optional[Tensor]
    ) -> Tensor:
        if bias is not None:
            bias = bias.to(query.dtype)
        dropped = self.weights_dropout.p if self.weights_dropout.drops() else 0.0
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask=bias, dropout_p=dropped, scale=1.0
        )

"""Attention with signed relative positions."""

import math
from dataclasses import dataclass
from typing import List, Optional, Tuple

import torch
from torch import Tensor, nn

from icefall_attn.attention.dot_product import attention_weights
from icefall_attn.attention.masking import merge_heads, split_heads
from icefall_attn.attention.contexts import AttentionContext
from icefall_attn.attention.registry import register
from icefall_attn.nn.dropout import Dropout
from icefall_attn.nn.positions import Sinusoids


class RelPosTable(nn.Module):
    """The table of sinusoids of signed distances.

    Row p of ``q_len + k_len - 1`` holds distance ``k_len - 1 - p``: positive distances are keys
    in the past, negative ones keys in the future.

    Args:
      dim: width D, even.
      legacy_symmetric: the table that SpeechBrain had before its PR #3073, in which the future
        looks like the past: kept for checkpoints trained with it.
    """

    def __init__(self, dim: int, legacy_symmetric: bool = False):
        super().__init__()
        self.legacy_symmetric = legacy_symmetric
        self.sinusoids = Sinusoids(dim)

    def forward(self, frames: int) -> List[Tensor]:
        """What the layers of a pass over ``frames`` share: ``(2 frames - 1, D)``."""
        return [self.rows(frames, frames)]

    def rows(self, q_len: int, k_len: int, lead: Optional[int] = None) -> Tensor:
        """Returns ``(q_len + k_len - 1, D)`` float32.

        The first query comes ``lead`` frames after the first key; without it the queries are the
        last of the keys.
        """
        lead = k_len - q_len if lead is None else lead
        first, end = lead + q_len - 1, lead - k_len
        if not self.legacy_symmetric or end >= -1:
            return self.sinusoids(first, end, -1)
        past = self.sinusoids(first, -1, -1)
        return torch.cat((past, self.sinusoids(1, -end, 1)))


@register("rel_pos")
class RelPosAttention(nn.Module):
    """``A_ij = softmax_j(((q_i + u) k_j + (q_i + v) p(i - j)) / s)`` (Dai et al. 2019, sec. 3.3).

    ``p(d) = W_pos r(d)`` with ``r`` the row of `RelPosTable` for the signed distance d; u and v
    are learned per head.
    """

    uses_input_positions = False

    @dataclass
    class Config:
        """Options of ``rel_pos``.

        Attributes:
          legacy_symmetric: use the symmetric table of SpeechBrain before its PR #3073. The table is that
            one bit for bit, and so are outputs wherever the matrix products have the shapes of SpeechBrain's;
            its fused projections round otherwise in the last bit.
          scale: ``head_dim`` divides scores by sqrt(D / H); ``embed_dim`` by sqrt(D), as
            SpeechBrain's checkpoints need.
        """

        legacy_symmetric: bool = False
        scale: str = "head_dim"

        def __post_init__(self):
            if self.scale not in ("head_dim", "embed_dim"):
                raise ValueError(
                    f"rel_pos.scale must be 'head_dim' or 'embed_dim', not {self.scale!r}"
                )

    @staticmethod
    def shared(dim: int, config: Config) -> nn.Module:
        """The table of positions, made once a pass."""
        return RelPosTable(dim, config.legacy_symmetric)

    def __init__(
        self, dim: int, heads: int, dropout: float, config: Config, layer: int = 0
    ):
        super().__init__()
        self.heads = heads
        self.scale = 1.0 / math.sqrt(
            dim if config.scale == "embed_dim" else dim // heads
        )
        self.query = nn.Linear(dim, dim)
        self.key = nn.Linear(dim, dim)
        self.value = nn.Linear(dim, dim)
        self.position = nn.Linear(dim, dim, bias=False)
        self.content_bias = nn.Parameter(torch.empty(dim))
        self.position_bias = nn.Parameter(torch.empty(dim))
        bound = math.sqrt(6.0 / (heads + dim // heads))  # Xavier, of an (H, d_h) matrix
        nn.init.uniform_(self.content_bias, -bound, bound)
        nn.init.uniform_(self.position_bias, -bound, bound)
        self.out = nn.Linear(dim, dim)
        self.weights_dropout = Dropout(dropout)
        self.table = RelPosTable(dim, config.legacy_symmetric)

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        """x: ``(B, T', D)``. Returns ``(B, T', D)``."""
        table = context.shared[0]
        query = self.query(x)
        content = split_heads((query + self.content_bias) * self.scale, self.heads)
        placed = split_heads((query + self.position_bias) * self.scale, self.heads)
        key = split_heads(self.key(x), self.heads)
        value = split_heads(self.value(x), self.heads)
        position = split_heads(
            self.position(table.to(x.dtype)).unsqueeze(0), self.heads
        )[0]
        if torch.jit.is_scripting() or torch.jit.is_tracing():
            scores = torch.matmul(content, key.transpose(2, 3))
            distances = torch.matmul(placed, position.transpose(1, 2))
            scores = scores + rel_shift(distances, key.size(2))
        else:
            scores = self._scores(content, placed, key, position)
        weights = self.weights_dropout(attention_weights(scores, context.bias))
        return self.out(merge_heads(torch.matmul(weights, value)))

    def parts(self, x: Tensor, times: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        """See `registry`; the queries are content's and position's side by side."""
        query = self.query(x)
        content = split_heads((query + self.content_bias) * self.scale, self.heads)
        placed = split_heads((query + self.position_bias) * self.scale, self.heads)
        key = split_heads(self.key(x), self.heads)
        value = split_heads(self.value(x), self.heads)
        return torch.cat((content, placed), dim=3), key, value

    def scores(self, query: Tensor, key: Tensor, lead: int) -> Tensor:
        """See `registry`."""
        content, placed = query.chunk(2, dim=3)
        batch, heads, q_len, width = placed.shape
        rows = self.table.rows(q_len, key.size(2), lead).to(query.dtype)
        if batch * heads * (width + rows.size(0)) * q_len < rows.size(0) * rows.size(1):
            # few queries, as in a stream: W_pos^T is less work on them than W_pos on the table
            weight = self.position.weight.unflatten(0, (heads, width))
            distances = torch.matmul(torch.matmul(placed, weight), rows.t())
            content = torch.matmul(content, key.transpose(2, 3))
            return content + rel_shift(distances, key.size(2))
        position = split_heads(self.position(rows).unsqueeze(0), heads)[0]
        if torch.jit.is_scripting() or torch.jit.is_tracing():
            distances = torch.matmul(placed, position.transpose(1, 2))
            content = torch.matmul(content, key.transpose(2, 3))
            return content + rel_shift(distances, key.size(2))
        return self._scores(content, placed, key, position)

    def weigh(self, scores: Tensor, bias: Tensor) -> Tensor:
        """See `registry`."""
        return self.weights_dropout(attention_weights(scores, bias))

    def mix(self, weights: Tensor, value: Tensor) -> Tensor:
        """See `registry`."""
        return torch.matmul(weights, value)

    def finish(self, out: Tensor) -> Tensor:
        """See `registry`."""
        return self.out(merge_heads(out))

    @torch.jit.unused
    def _scores(
        self, content: Tensor, placed: Tensor, key: Tensor, position: Tensor
    ) -> Tensor:
        # autocast's: its sums with the biases, which are float32, would be float32
        content, placed = content.to(key.dtype), placed.to(key.dtype)
        return RelPosScores.apply(content, placed, key, position)


def rel_shift(x: Tensor, k_len: int) -> Tensor:
    """From scores by distance to scores by key.

    Args:
      x: ``(B, H, q, q + k - 1)``; column p belongs to distance ``k - 1 - p``.
      k_len: number k of keys, of which the queries are the last q.

    Returns:
      ``(B, H, q, k)``: entry (i, j) is ``x[i, (q - 1 - i) + j]``.
    """
    batch, heads, q_len, columns = x.shape
    x = torch.nn.functional.pad(x, (1, 0))
    x = x.view(batch, heads, columns + 1, q_len)[:, :, 1:].reshape(
        batch, heads, q_len, columns
    )
    return x[..., :k_len]


class RelPosScores(torch.autograd.Function):
    """``content key^T + rel_shift(placed position^T)``, the shift being a view.

    Plain autograd would keep the scores by distance, twice as wide, and copy them several times
    in both passes.

    Shapes: content, placed ``(B, H, q, d_h)``; key ``(B, H, k, d_h)``; position
    ``(H, q + k - 1, d_h)``; the result ``(B, H, q, k)``.
    """

    @staticmethod
    def forward(
        ctx, content: Tensor, placed: Tensor, key: Tensor, position: Tensor
    ) -> Tensor:
        # contiguous once, for the products of both passes
        content, placed = content.contiguous(), placed.contiguous()
        key, position = key.contiguous(), position.contiguous()
        ctx.save_for_backward(content, placed, key, position)
        scores = torch.matmul(content, key.transpose(2, 3))
        distances = torch.matmul(placed, position.transpose(1, 2))
        return scores.add_(_by_key(distances, key.size(2)))

    @staticmethod
    def backward(ctx, grad: Tensor):
        content, placed, key, position = ctx.saved_tensors
        grad_content = torch.matmul(grad, key)
        grad_key = torch.matmul(grad.transpose(2, 3), content)
        by_distance = grad.new_zeros(*grad.shape[:3], position.size(1))
        _by_key(by_distance, key.size(2)).copy_(grad)
        grad_placed = torch.matmul(by_distance, position)
        grad_position = torch.matmul(by_distance.transpose(2, 3), placed).sum(dim=0)
        return grad_content, grad_placed, grad_key, grad_position


def _by_key(x: Tensor, k_len: int) -> Tensor:
    """`rel_shift` as a view of a contiguous ``(B, H, q, q + k - 1)`` tensor."""
    batch, heads, q_len, columns = x.shape
    strides = (heads * q_len * columns, q_len * columns, columns - 1, 1)
    return x.as_strided((batch, heads, q_len, k_len), strides, q_len - 1)

"""Chunk self-attention (CSA): chunks with copies of their own of the frames they overlap in.

Chunk k holds the frames from ``k hop`` to ``k hop + hop + overlap``. Its first ``hop`` are its own, the others
copies of frames that a later chunk owns: they are encoded here for the chunk's sake, and then dropped.
All layers see the unfolded chunks, ``K (hop + overlap)`` frames, since a mask over the utterance's
own frames would let the look-ahead grow with every layer.
"""

from typing import List, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from icefall_attn.attention.contexts import AttentionContext, ContextConfig, Window
from icefall_attn.attention.masking import hidden_bias


class ChunkedView(nn.Module):
    """The frames as unfolded chunks; see `View`."""

    def __init__(self, config: ContextConfig, scores_keys: bool):
        super().__init__()
        self.hop, self.overlap, self.back = config.csa.window()
        self.width = self.hop + self.overlap

    def enter(self, x: Tensor, valid: Tensor) -> Tuple[Tensor, Tensor]:
        """``(B, K width, D)`` and ``(B, K width)``; frames beyond the end are not valid."""
        chunks = max(1, (x.size(1) + self.hop - 1) // self.hop)
        missing = (chunks - 1) * self.hop + self.width - x.size(1)
        x = F.pad(x, (0, 0, 0, missing)).unfold(1, self.width, self.hop)
        valid = F.pad(valid, (0, missing)).unfold(1, self.width, self.hop)
        return x.transpose(2, 3).flatten(1, 2), valid.flatten(1, 2)

    def context(
        self, valid: Tensor, dtype: torch.dtype, shared: List[Tensor]
    ) -> AttentionContext:
        """The bias ``(B, 1, K width, K hop + width)`` is that of the frames that earlier chunks own, and of those
        of a query's chunk."""
        chunks = valid.unflatten(1, (-1, self.width))
        own = chunks[:, :, : self.hop].flatten(1)
        start = torch.arange(chunks.size(1), device=valid.device) * self.hop
        start = start.repeat_interleave(self.width).unsqueeze(1)
        key = torch.arange(own.size(1), device=valid.device)
        visible = (key < start) & (key >= start - self.back)
        local = chunks.repeat_interleave(self.width, dim=1)
        visible = torch.cat((own.unsqueeze(1) & visible, local), dim=2).unsqueeze(1)
        window = Window(self.hop, self.overlap, self.back)
        return AttentionContext(valid, hidden_bias(visible, dtype), shared, window)

    def leave(self, x: Tensor, frames: int) -> Tensor:
        """The frames that the chunks own."""
        own = x.unflatten(1, (-1, self.width))[:, :, : self.hop]
        return own.flatten(1, 2)[:, :frames]

    def distance(self, x: Tensor, seen: Tensor) -> Optional[Tensor]:
        """None; see `View`."""
        return None


class ChunkedAttention(nn.Module):
    """Joined with a mechanism's class: its pass over unfolded chunks."""

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        """x: ``(B, K width, D)``. Returns ``(B, K width, D)``."""
        hop, width = context.window.chunk, context.window.chunk + context.window.ahead
        bias = context.bias
        assert bias is not None
        chunks = x.size(1) // width
        starts = torch.arange(chunks, device=x.device).unsqueeze(1) * hop
        times = (starts + torch.arange(width, device=x.device)).flatten()
        query, key, value = self.parts(x, times * context.valid)
        query, key, value = [y.unflatten(2, (-1, width)) for y in (query, key, value)]
        own_key = key[:, :, :, :hop].flatten(2, 3)
        own_value = value[:, :, :, :hop].flatten(2, 3)
        # every hop-th query of the chunks is a sequence of queries one frame apart
        far = []
        for first in range(0, width, hop):
            part = query[:, :, :, first : first + hop]
            missing = hop - part.size(3)
            run = F.pad(part, (0, 0, 0, missing)).flatten(2, 3)
            scores = self.scores(run, own_key, first).unflatten(2, (-1, hop))
            far.append(scores[:, :, :, : hop - missing])
        scores = torch.cat(far, dim=3).flatten(2, 3)
        batch = query.size(0)
        query, key, value = [
            y.transpose(1, 2).flatten(0, 1) for y in (query, key, value)
        ]
        near = self.scores(query, key, 0)
        near = near.unflatten(0, (batch, chunks)).transpose(1, 2).flatten(2, 3)
        weights = self.weigh(torch.cat((scores, near), dim=3), bias)
        out = self.mix(weights[..., : own_key.size(2)], own_value)
        near = weights[..., own_key.size(2) :].unflatten(2, (chunks, width))
        near = self.mix(near.transpose(1, 2).flatten(0, 1), value)
        near = near.unflatten(0, (batch, chunks)).transpose(1, 2).flatten(2, 3)
        return self.finish(out + near)

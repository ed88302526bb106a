"""Dual causal and non-causal self-attention (DCN; Moritz, Hori, Le Roux 2021).

Both streams of a layer have the same weights but for their norms, and stand in one batch: the causal
one first, then the non-causal one. They exchange keys and values. With look-ahead e,

* the causal query n takes the non-causal frames m < n - e (or m <= n - e: ``inclusive``) and the causal
  ones up to n;
* the non-causal query n takes the non-causal frames m <= n and the causal ones from n + 1 to n + e.

So a causal frame never depends on later input and a non-causal one on e frames of it, however
many layers there are. Causal keys are needed in a band of e + 1 frames alone: their scores are
taken between blocks of queries and the few keys around them, so that a layer costs about two
causal passes.
"""

from typing import List, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from icefall_attn.attention.contexts import AttentionContext, ContextConfig, Window
from icefall_attn.attention.masking import hidden_bias


def sees_non_causal(
    window: Window, strict: bool, stream: int, query: Tensor, key: Tensor
) -> Tensor:
    """Whether queries of stream 0 (causal) or 1 at times ``query`` see non-causal keys at ``key``."""
    newest = query if stream == 1 else query - window.ahead - int(strict)
    return (key <= newest) & (query - key <= window.back)


def sees_causal(
    window: Window, strict: bool, stream: int, query: Tensor, key: Tensor
) -> Tensor:
    """Whether queries of stream 0 (causal) or 1 at times ``query`` see causal keys at ``key``."""
    if stream == 1:
        return (key > query) & (key <= query + window.ahead)
    oldest = query - window.ahead + int(not strict)
    return (key <= query) & (key >= oldest) & (query - key <= window.back)


class DualView(nn.Module):
    """The frames twice, for two streams; see `View`."""

    def __init__(self, config: ContextConfig, scores_keys: bool):
        super().__init__()
        self.chunk, self.ahead, self.back = config.dcn.window()
        self.strict = config.dcn.boundary == "strict"
        self.block = 32

    def enter(self, x: Tensor, valid: Tensor) -> Tuple[Tensor, Tensor]:
        """``(2 B, T', D)`` and ``(2 B, T')``."""
        return torch.cat((x, x)), torch.cat((valid, valid))

    def context(
        self, valid: Tensor, dtype: torch.dtype, shared: List[Tensor]
    ) -> AttentionContext:
        """The bias ``(2 B, 1, T', T' + block + ahead)`` is that of all non-causal keys and of the causal
        ones around each block of queries."""
        window = Window(self.chunk, self.ahead, self.back)
        frames = torch.arange(valid.size(1), device=valid.device)
        query, place = frames.unsqueeze(1), torch.arange(self.block + self.ahead)
        place = place.to(valid.device)
        biases: List[Tensor] = []
        for stream, own in enumerate(valid.chunk(2)):
            far = sees_non_causal(window, self.strict, stream, query, frames)
            far = far & own.unsqueeze(1)
            key = (
                query - query % self.block + place - (0 if stream == 1 else self.ahead)
            )
            near = sees_causal(window, self.strict, stream, query, key)
            near = near & (key >= 0) & (key < valid.size(1))
            near = near & own[:, key.clamp(0, max(valid.size(1) - 1, 0))]
            visible = torch.cat((far, near), dim=2).unsqueeze(1)
            biases.append(hidden_bias(visible, dtype))
        return AttentionContext(valid, torch.cat(biases), shared, window)

    def leave(self, x: Tensor, frames: int) -> Tensor:
        """The non-causal stream."""
        return x[x.size(0) // 2 :]

    def distance(self, x: Tensor, seen: Tensor) -> Optional[Tensor]:
        """How far the causal stream is from the non-causal one, which teaches it.

        Args:
          x: ``(2 B, T', D)``, the last block's output.
          seen: ``(2 B, T')``, valid frames.

        Returns:
          ``(B,)`` float32: squared differences, their means over channels added up over valid frames. The
          teacher has no gradient.
        """
        student, teacher = x.float().chunk(2)
        squares = (student - teacher.detach()).pow(2).mean(dim=2)
        return squares.masked_fill(~seen[: squares.size(0)], 0.0).sum(dim=1)


class DualAttention(nn.Module):
    """Joined with a mechanism's class: its pass over two streams."""

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        """x: ``(2 B, T', D)``. Returns ``(2 B, T', D)``."""
        ahead, frames = context.window.ahead, x.size(1)
        bias = context.bias
        assert bias is not None
        times = torch.arange(frames, device=x.device) * context.valid
        query, key, value = self.parts(x, times)
        # both streams meet the keys of the non-causal one
        half = key.size(0) // 2
        far_key = torch.cat((key[half:], key[half:]))
        far_value = torch.cat((value[half:], value[half:]))
        far = self.scores(query, far_key, 0)
        # and the causal keys around them, by blocks
        block = bias.size(3) - frames - ahead
        blocks = into_blocks(query, block)
        keys = around(key[:half], block, ahead)
        values = around(value[:half], block, ahead)
        near = torch.cat(
            (
                self.scores(blocks[: blocks.size(0) // 2], keys[0], ahead),
                self.scores(blocks[blocks.size(0) // 2 :], keys[1], 0),
            )
        )
        near = out_of_blocks(near, frames)
        weights = self.weigh(torch.cat((far, near), dim=3), bias)
        out = self.mix(weights[..., :frames], far_value)
        near = into_blocks(weights[..., frames:], block)
        near = self.mix(near, torch.cat((values[0], values[1])))
        return self.finish(out + out_of_blocks(near, frames))


def into_blocks(x: Tensor, block: int) -> Tensor:
    """``(B, H, T, d)`` to ``(B blocks, H, block, d)``, 0 after the end."""
    missing = (block - x.size(2) % block) % block
    x = F.pad(x, (0, 0, 0, missing)).unflatten(2, (-1, block))
    return x.transpose(1, 2).flatten(0, 1)


def out_of_blocks(x: Tensor, frames: int) -> Tensor:
    """The inverse of `into_blocks`."""
    blocks = (frames + x.size(2) - 1) // x.size(2)
    x = x.unflatten(0, (-1, blocks)).transpose(1, 2)
    return x.flatten(2, 3)[:, :, :frames]


def around(x: Tensor, block: int, ahead: int) -> Tuple[Tensor, Tensor]:
    """The frames around each block, ``(B blocks, H, block + ahead, d)`` twice.

    Those from ``ahead`` frames before its first, and those from its first.
    """
    missing = (block - x.size(2) % block) % block
    blocks = (x.size(2) + missing) // block
    x = F.pad(x, (0, 0, ahead, ahead + missing))
    before = x.unfold(2, block + ahead, block)[:, :, :blocks]
    after = x[:, :, ahead:].unfold(2, block + ahead, block)[:, :, :blocks]
    # (B, H, blocks, d, width)
    return (
        before.permute(0, 2, 1, 4, 3).flatten(0, 1),
        after.permute(0, 2, 1, 4, 3).flatten(0, 1),
    )

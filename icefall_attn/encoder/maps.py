"""Attention maps: how much every frame takes from every other, whatever the mechanism and the context."""

import copy
from typing import List

import torch
from torch import Tensor, nn

from icefall_attn.attention.masking import split_heads


@torch.no_grad()
def attention_maps(encoder: nn.Module, x: Tensor, lengths: Tensor) -> List[Tensor]:
    """The attention maps of all blocks in one pass over a batch.

    Every mechanism is linear in its values. So when each frame's value is its own number, one-hot, what
    comes out for a frame are the weights that it gave to all: of linear attention, too, which never
    forms them, and of lazy queries, whose weight is their own. A map of ``csa`` adds up a frame and its copies;
    one of ``dcn`` is of the non-causal stream, and adds up a frame in both.

    Nothing is left behind in the encoder, and its outputs are not touched.

    Args:
      encoder: a `Conformer`, in evaluation mode.
      x: ``(B, T, F)`` features.
      lengths: ``(B,)``.

    Returns:
      For each block ``(B, H, T', T')``: row i holds the weights of the values that frame i takes.
    """
    calls: List[tuple] = []
    hooks = [
        block.attention.register_forward_pre_hook(lambda _, call: calls.append(call))
        for block in encoder.blocks
    ]
    try:
        out, _ = encoder(x, lengths)
    finally:
        for hook in hooks:
            hook.remove()
    frames = out.size(1)
    each = torch.eye(frames, dtype=out.dtype, device=out.device)
    each = each.expand(out.size(0), -1, -1)
    everywhere = each.new_ones(each.shape[:2], dtype=torch.bool)
    numbers, _ = encoder.view.enter(each, everywhere)
    return [
        attention_map(block.attention, numbers, call, encoder.view, frames)
        for block, call in zip(encoder.blocks, calls)
    ]


def attention_map(
    attention: nn.Module, values: Tensor, call: tuple, view: nn.Module, frames: int
) -> Tensor:
    """What ``attention`` gives for other values than its own.

    Args:
      attention: a mechanism, with ``heads``, and its ``value`` and ``out`` maps.
      values: ``(B', n, V)`` for all heads, in the arrangement of ``view``.
      call: x and context that the mechanism was called with.
      view: of the encoder.
      frames: T'.

    Returns:
      ``(B, H, T', V)``.
    """
    x, context = call
    probe = copy.copy(attention)
    probe._modules = {
        **attention._modules,
        "value": _Given(values.repeat(1, 1, attention.heads)),
        "out": nn.Identity(),
    }
    return split_heads(view.leave(probe(x, context), frames), attention.heads)


class _Given(nn.Module):
    """In place of the values' map: values that are known."""

    def __init__(self, values: Tensor):
        super().__init__()
        self.values = values

    def forward(self, x: Tensor) -> Tensor:
        return self.values

"""How a pass over whole utterances is arranged for a context of one group of keys."""

from typing import List, Optional, Tuple

import torch
from torch import Tensor, nn

from icefall_attn.attention.contexts import (
    AttentionContext,
    ContextConfig,
    Window,
    by_order,
    unlimited,
)
from icefall_attn.attention.masking import visible_bias


class View(nn.Module):
    """The frames as they are; a `Window` says which keys a query sees.

    Args:
      config: the context.
      scores_keys: whether the mechanism reads a bias where keys go `by_order`, too.
    """

    def __init__(self, config: ContextConfig, scores_keys: bool):
        super().__init__()
        self.chunk, self.ahead, self.back = config.chosen.window()
        self.smallest = config.chunk.smallest if config.kind == "chunk" else 0
        self.scores_keys = scores_keys

    def enter(self, x: Tensor, valid: Tensor) -> Tuple[Tensor, Tensor]:
        """``(B, T', D)`` frames and their mask ``(B, T')``, as the blocks get them."""
        return x, valid

    def context(
        self, valid: Tensor, dtype: torch.dtype, shared: List[Tensor]
    ) -> AttentionContext:
        """What the blocks are told; ``valid`` as `enter` gave it."""
        window = self.window()
        bias: Optional[Tensor] = None
        if self.scores_keys or not by_order(window):
            bias = visible_bias(valid, dtype, window)
        return AttentionContext(valid, bias, shared, window)

    def window(self) -> Window:
        """Of this pass; in training its chunk size may be drawn."""
        chunk, back = self.chunk, self.back
        if self.training and self.smallest > 0:
            chunk = int(torch.randint(self.smallest, self.chunk + 1, (1,)))
            if not unlimited(back):
                back = back // self.chunk * chunk
        return Window(chunk, self.ahead, back)

    def leave(self, x: Tensor, frames: int) -> Tensor:
        """What a block gave, as ``(B, T', D)`` frames."""
        return x

    def distance(self, x: Tensor, seen: Tensor) -> Optional[Tensor]:
        """Between two streams, if the context has them; see `DualView`."""
        return None

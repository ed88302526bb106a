"""The linear maps around an attention mechanism."""

from typing import Tuple

from torch import Tensor, nn

from icefall_attn.attention.masking import merge_heads, split_heads


class Projections(nn.Module):
    """Queries, keys and values of H heads, and the map of what they attend to.

    Mechanisms with no others have the same weights by name, so that one can start from another.
    """

    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(dim, dim)
        self.key = nn.Linear(dim, dim)
        self.value = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, dim)

    def project(self, x: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        """``(B, T', D)`` to queries, keys and values, each ``(B, H, T', D / H)``."""
        return (
            split_heads(self.query(x), self.heads),
            split_heads(self.key(x), self.heads),
            split_heads(self.value(x), self.heads),
        )

    def leave(self, heads: Tensor) -> Tensor:
        """``(B, H, T', D / H)`` to ``(B, T', D)``."""
        return self.out(merge_heads(heads))

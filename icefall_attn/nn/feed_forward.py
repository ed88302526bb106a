"""The position-wise feed-forward module of a Conformer block."""

import torch.nn.functional as F
from torch import Tensor, nn

from icefall_attn.nn.dropout import Dropout


class FeedForward(nn.Module):
    """``W2 dropout(swish(W1 x))`` and a last dropout (Gulati et al. 2020, figure 4)."""

    def __init__(self, dim: int, hidden_dim: int, dropout: float):
        super().__init__()
        self.inner = nn.Linear(dim, hidden_dim)
        self.outer = nn.Linear(hidden_dim, dim)
        self.hidden_dropout = Dropout(dropout)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """x: ``(B, T, D)``. Returns ``(B, T, D)``."""
        hidden = self.hidden_dropout(F.silu(self.inner(x)))
        return self.dropout(self.outer(hidden))

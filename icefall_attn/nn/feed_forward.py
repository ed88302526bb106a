"""The position-wise feed-forward modules of a Conformer block."""

import torch
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


class GatedFeedForward(nn.Module):
    """``(swish(x W1) * x W2) W3`` (LMEC, Yang et al. 2022, eq. for GLU), about as many weights.

    Its hidden width is two thirds of ``hidden_dim``, rounded, since there are three matrices. The paper
    does not name the activation; the Conformer's is Swish.
    """

    def __init__(self, dim: int, hidden_dim: int, dropout: float):
        super().__init__()
        width = round(2 * hidden_dim / 3)
        self.gate = nn.Linear(dim, width)
        self.inner = nn.Linear(dim, width)
        self.outer = nn.Linear(width, dim)
        self.hidden_dropout = Dropout(dropout)
        self.dropout = Dropout(dropout)

    def activation(self, x: Tensor) -> Tensor:
        """Of the gate."""
        return F.silu(x)

    def forward(self, x: Tensor) -> Tensor:
        """x: ``(B, T, D)``. Returns ``(B, T, D)``."""
        hidden = self.hidden_dropout(self.activation(self.gate(x)) * self.inner(x))
        return self.dropout(self.outer(hidden))


class SigmoidGatedFeedForward(GatedFeedForward):
    """`GatedFeedForward` with a sigmoid, as gated linear units had it first (Dauphin et al. 2017)."""

    def activation(self, x: Tensor) -> Tensor:
        return torch.sigmoid(x)


FEED_FORWARDS = {
    "ffn": FeedForward,
    "glu": GatedFeedForward,
    "glu_sigmoid": SigmoidGatedFeedForward,
}

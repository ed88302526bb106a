"""The convolution module of a Conformer block."""

import torch.nn.functional as F
from torch import Tensor, nn

from icefall_attn.nn.dropout import Dropout
from icefall_attn.nn.normalize import FrameNorm, MaskedBatchNorm


class ConvolutionModule(nn.Module):
    """Pointwise, GLU, depthwise, norm, swish, pointwise (Gulati et al. 2020, figure 2).

    Frames of padding are 0 before the depthwise convolution, so that no kernel sees them.

    Args:
      dim: width D.
      kernel_size: odd; frames seen by the depthwise convolution.
      norm: ``batch`` (statistics of valid frames only) or ``layer``.
      dropout: probability after the module.
    """

    def __init__(self, dim: int, kernel_size: int, norm: str, dropout: float):
        super().__init__()
        self.pointwise_in = nn.Linear(dim, 2 * dim)
        self.depthwise = nn.Conv1d(
            dim, dim, kernel_size, padding=kernel_size // 2, groups=dim
        )
        self.norm = MaskedBatchNorm(dim) if norm == "batch" else FrameNorm(dim)
        self.pointwise_out = nn.Linear(dim, dim)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        """x: ``(B, T, D)``; valid: ``(B, T)`` bool. Returns ``(B, T, D)``."""
        x = F.glu(self.pointwise_in(x), dim=-1)
        x = x.masked_fill(~valid.unsqueeze(2), 0.0)
        x = self._depthwise(x)
        return self.dropout(self.pointwise_out(F.silu(self.norm(x, valid))))

    def _depthwise(self, x: Tensor) -> Tensor:
        """The convolution over time of ``(B, T, D)``.

        Written as a two-dimensional one over a channels-last view: no transposed copy is made,
        and CPU libraries have a kernel for it that is several times faster than `Conv1d`'s.
        """
        conv = self.depthwise
        out = F.conv2d(
            x.transpose(1, 2).unsqueeze(2),
            conv.weight.unsqueeze(2),
            conv.bias,
            padding=(0, conv.kernel_size[0] // 2),
            groups=conv.groups,
        )
        return out.squeeze(2).transpose(1, 2)

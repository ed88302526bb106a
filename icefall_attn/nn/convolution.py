"""The convolution module of a Conformer block."""

from typing import Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from icefall_attn.nn.dropout import Dropout


class ConvolutionModule(nn.Module):
    """Pointwise, GLU, depthwise, norm, swish, pointwise (Gulati et al. 2020, figure 2).

    Frames of padding are 0 before the depthwise convolution, so that no kernel sees them.

    Args:
      dim: width D.
      kernel_size: odd; frames seen by the depthwise convolution.
      norm: `FrameNorm`, `MaskedBatchNorm` or a module called like them.
      dropout: probability after the module.
      causal: see ``kernel_size - 1`` past frames and the present one, not as many on both sides.
    """

    def __init__(
        self,
        dim: int,
        kernel_size: int,
        norm: nn.Module,
        dropout: float,
        causal: bool = False,
    ):
        super().__init__()
        self.pointwise_in = nn.Linear(dim, 2 * dim)
        self.depthwise = nn.Conv1d(
            dim, dim, kernel_size, padding=kernel_size // 2, groups=dim
        )
        self.norm = norm
        self.pointwise_out = nn.Linear(dim, dim)
        self.dropout = Dropout(dropout)
        self.causal = causal
        self.past = kernel_size - 1

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        """x: ``(B, T, D)``; valid: ``(B, T)`` bool. Returns ``(B, T, D)``."""
        x = self._enter(x, valid)
        if self.causal:
            x = self._depthwise(F.pad(x, (0, 0, self.past, 0)), 0)
        else:
            x = self._depthwise(x, self.past // 2)
        return self._leave(x, valid)

    def step(self, x: Tensor, valid: Tensor, past: Tensor) -> Tuple[Tensor, Tensor]:
        """The causal module on pieces of streams.

        Args:
          x: ``(B, n, D)``.
          valid: ``(B, n)`` bool.
          past: ``(B, kernel_size - 1, D)``, what the convolution saw before; 0 at the start.

        Returns:
          ``(B, n, D)``, and ``past`` with what the convolution saw now.
        """
        seen = torch.cat((past, self._enter(x, valid)), dim=1)
        return self._leave(self._depthwise(seen, 0), valid), seen

    def _enter(self, x: Tensor, valid: Tensor) -> Tensor:
        x = F.glu(self.pointwise_in(x), dim=-1)
        return x.masked_fill(~valid.unsqueeze(2), 0.0)

    def _leave(self, x: Tensor, valid: Tensor) -> Tensor:
        return self.dropout(self.pointwise_out(F.silu(self.norm(x, valid))))

    def _depthwise(self, x: Tensor, padding: int) -> Tensor:
        """The convolution over time of ``(B, T, D)``.

        Written as a two-dimensional one over a channels-last view: no transposed copy is made,
        and CPU libraries have a kernel for it that is several times faster than `Conv1d`'s.
        """
        conv = self.depthwise
        out = F.conv2d(
            x.transpose(1, 2).unsqueeze(2),
            conv.weight.unsqueeze(2),
            conv.bias,
            padding=(0, padding),
            groups=conv.groups,
        )
        return out.squeeze(2).transpose(1, 2)


class ChunkedConvolution(ConvolutionModule):
    """The causal module on chunks of ``width`` frames that begin every ``hop`` frames.

    Each chunk sees its own frames and, before them, the first ``hop`` of the chunks before it.
    """

    def __init__(
        self,
        dim: int,
        kernel_size: int,
        norm: nn.Module,
        dropout: float,
        hop: int,
        width: int,
    ):
        super().__init__(dim, kernel_size, norm, dropout, causal=True)
        self.hop, self.width = hop, width

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        """x: ``(B, K width, D)``; valid: ``(B, K width)`` bool. Returns ``(B, K width, D)``."""
        batch, _, dim = x.shape
        chunks = self._enter(x, valid).view(batch, -1, self.width, dim)
        kept = chunks[:, :, : self.hop].flatten(1, 2)
        kept = F.pad(kept, (0, 0, self.past, 0)).unfold(1, self.past, self.hop)
        before = kept[:, : chunks.size(1)].transpose(2, 3)
        seen = torch.cat((before, chunks), dim=2).flatten(0, 1)
        return self._leave(self._depthwise(seen, 0).reshape(batch, -1, dim), valid)

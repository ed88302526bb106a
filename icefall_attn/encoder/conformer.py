"""The Conformer encoder (Gulati et al. 2020), its self-attention chosen by name."""

from dataclasses import dataclass, field
from typing import List, Optional, Tuple

import torch
from torch import Tensor, nn

from icefall_attn.attention import (
    MECHANISMS,
    AttentionConfig,
    AttentionContext,
    make_attention,
    make_shared,
    objection,
)
from icefall_attn.attention.masking import visible_bias
from icefall_attn.nn.convolution import ConvolutionModule
from icefall_attn.nn.dropout import Dropout
from icefall_attn.nn.feed_forward import FEED_FORWARDS
from icefall_attn.nn.lengths import valid_mask
from icefall_attn.nn.positions import AbsolutePositions
from icefall_attn.nn.subsampling import ConvSubsampling


FRAMES_PER_SECOND = 25  # after subsampling
CONTEXTS = ("full", "causal")


@dataclass
class ContextConfig:
    """Which frames the self-attention of a frame sees.

    Attributes:
      kind: ``full`` sees the whole utterance, ``causal`` no frame after its own.
    """

    kind: str = "full"

    def __post_init__(self):
        if self.kind not in CONTEXTS:
            raise ValueError(
                f"context.kind must be one of {', '.join(CONTEXTS)}, not {self.kind!r}"
            )


@dataclass
class ConformerConfig:
    """The encoder's sizes and choices.

    Attributes:
      feature_dim: bins F of the features.
      dim: width D.
      num_layers: blocks.
      heads: attention heads H; they divide D.
      feed_forward: ``ffn`` or ``glu`` (gated, with two thirds of the width).
      feed_forward_dim: hidden width of the feed-forward modules.
      kernel_size: frames seen by the depthwise convolution, odd.
      conv_norm: ``batch`` or ``layer`` normalisation in the convolution module.
      subsampling_channels: channels of the front-end's convolutions; 0 takes D.
      dropout: probability, everywhere in the blocks.
      input_positions: absolute positions at the input: ``auto`` asks the attention mechanism,
        ``absolute`` and ``none`` decide.
      attention: the self-attention mechanism and its options.
      context: which frames it sees.
    """

    feature_dim: int = 80
    dim: int = 256
    num_layers: int = 12
    heads: int = 4
    feed_forward: str = "ffn"
    feed_forward_dim: int = 1024
    kernel_size: int = 15
    conv_norm: str = "layer"
    subsampling_channels: int = 0
    dropout: float = 0.1
    input_positions: str = "auto"
    attention: AttentionConfig = field(default_factory=AttentionConfig)
    context: ContextConfig = field(default_factory=ContextConfig)

    def __post_init__(self):
        for name in ("dim", "num_layers", "heads", "feed_forward_dim"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"encoder.{name} must be at least 1, not {getattr(self, name)}"
                )
        kind = self.attention.kind
        if kind not in MECHANISMS:
            known = ", ".join(MECHANISMS)
            raise ValueError(f"attention.kind must be one of {known}, not {kind!r}")
        if self.dim % self.heads != 0 or self.dim % 2 != 0:
            raise ValueError(
                f"encoder.dim must be even and a multiple of encoder.heads={self.heads}, "
                f"not {self.dim}"
            )
        if self.conv_norm not in ("batch", "layer"):
            raise ValueError(
                f"conv_norm must be 'batch' or 'layer', not {self.conv_norm!r}"
            )
        if self.feed_forward not in FEED_FORWARDS:
            known = ", ".join(FEED_FORWARDS)
            raise ValueError(
                f"encoder.feed_forward must be one of {known}, not {self.feed_forward!r}"
            )
        if self.kernel_size % 2 == 0:
            raise ValueError(f"encoder.kernel_size must be odd, not {self.kernel_size}")
        if self.feature_dim < 7:
            raise ValueError(
                f"encoder.feature_dim must be 7 or more, not {self.feature_dim}"
            )
        if self.input_positions not in ("auto", "absolute", "none"):
            raise ValueError(
                "input_positions must be 'auto', 'absolute' or 'none', "
                f"not {self.input_positions!r}"
            )
        reason = objection(self.attention, self)
        if reason is not None:
            raise ValueError(
                f"attention.kind={kind} cannot be had with context.kind={self.context.kind}, "
                f"num_layers={self.num_layers} and its other options: {reason}"
            )

    def check_longest(self, seconds: float) -> None:
        """Refuses training speech that is longer than the attention's positions reach.

        Raises:
          ValueError: naming the way out.
        """
        options = getattr(self.attention, self.attention.kind, None)
        longest = getattr(options, "longest", 0)
        if 0 < longest < int(seconds * FRAMES_PER_SECOND):
            raise ValueError(
                f"data.max_utterance={seconds:g} s is longer than the {longest} frames of 40 ms that "
                f"attention.kind={self.attention.kind} is set to; lower the one or raise the other"
            )


class ConformerBlock(nn.Module):
    """``x + FFN/2``, ``+ attention``, ``+ convolution``, ``+ FFN/2``, LayerNorm."""

    def __init__(self, config: ConformerConfig, layer: int):
        super().__init__()
        dim, hidden, dropout = config.dim, config.feed_forward_dim, config.dropout
        self.norm_in = nn.LayerNorm(dim)
        feed_forward = FEED_FORWARDS[config.feed_forward]
        self.feed_forward_in = feed_forward(dim, hidden, dropout)
        self.norm_attention = nn.LayerNorm(dim)
        self.attention = make_attention(
            config.attention, dim, config.heads, dropout, layer
        )
        self.dropout = Dropout(dropout)
        self.norm_conv = nn.LayerNorm(dim)
        self.conv = ConvolutionModule(
            dim, config.kernel_size, config.conv_norm, dropout
        )
        self.norm_out = nn.LayerNorm(dim)
        self.feed_forward_out = feed_forward(dim, hidden, dropout)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        """x: ``(B, T', D)``. Returns ``(B, T', D)``."""
        x = torch.add(x, self.feed_forward_in(self.norm_in(x)), alpha=0.5)
        x = x + self.dropout(self.attention(self.norm_attention(x), context))
        x = x + self.conv(self.norm_conv(x), context.valid)
        x = torch.add(x, self.feed_forward_out(self.norm_out(x)), alpha=0.5)
        return self.norm(x)


class Conformer(nn.Module):
    """Features to encoder frames."""

    def __init__(self, config: ConformerConfig):
        super().__init__()
        self.dim = config.dim
        self.causal = config.context.kind == "causal"
        self.scores_keys = getattr(
            MECHANISMS[config.attention.kind], "scores_keys", True
        )
        channels = config.subsampling_channels or config.dim
        self.subsampling = ConvSubsampling(config.feature_dim, channels, config.dim)
        positions = config.input_positions
        if positions == "auto":
            wanted = MECHANISMS[config.attention.kind].uses_input_positions
            positions = "absolute" if wanted else "none"
        self.positions = (
            AbsolutePositions(config.dim, config.dropout)
            if positions == "absolute"
            else Dropout(config.dropout)
        )
        self.shared = make_shared(config.attention, config.dim)
        self.blocks = nn.ModuleList(
            ConformerBlock(config, layer) for layer in range(config.num_layers)
        )

    def forward(self, x: Tensor, lengths: Tensor) -> Tuple[Tensor, Tensor]:
        """Encodes a batch.

        Args:
          x: ``(B, T, F)`` features; padding beyond ``lengths`` never reaches a valid output,
            whatever it holds.
          lengths: ``(B,)`` valid frames.

        Returns:
          ``(B, T', D)``, 0 beyond the lengths, and the lengths ``(B,)``.
        """
        outputs, lengths = self.layers(x, lengths, [])
        return outputs[-1], lengths

    def layers(
        self, x: Tensor, lengths: Tensor, tap: List[int]
    ) -> Tuple[List[Tensor], Tensor]:
        """Like `forward`, with the outputs of the blocks in ``tap``, from 1, before the last one's."""
        x = x.masked_fill(~valid_mask(lengths, x.size(1)).unsqueeze(2), 0.0)
        x, lengths = self.subsampling(x, lengths)
        valid = valid_mask(lengths, x.size(1))
        x = self.positions(x)
        bias: Optional[Tensor] = None
        if self.scores_keys:
            bias = visible_bias(valid, x.dtype, self.causal)
        context = AttentionContext(valid, bias, self.shared(x.size(1)), self.causal)
        outputs: List[Tensor] = []
        for index, block in enumerate(self.blocks):
            x = block(x, context)
            if index + 1 in tap:
                outputs.append(x)
        outputs.append(x.masked_fill(~valid.unsqueeze(2), 0.0))
        return outputs, lengths

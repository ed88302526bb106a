"""The Conformer encoder (Gulati et al. 2020), its self-attention and context chosen by name."""

from dataclasses import dataclass, field
from typing import List, Optional, Tuple

import torch
from torch import Tensor, nn

from icefall_attn.attention import (
    MECHANISMS,
    AttentionConfig,
    AttentionContext,
    ContextConfig,
    make_attention,
    make_shared,
    make_view,
    objection,
)
from icefall_attn.encoder.stream import EncoderState, init_state, step
from icefall_attn.nn.convolution import ChunkedConvolution, ConvolutionModule
from icefall_attn.nn.dropout import Dropout
from icefall_attn.nn.feed_forward import FEED_FORWARDS
from icefall_attn.nn.lengths import valid_mask
from icefall_attn.nn.normalize import (
    FrameNorm,
    MaskedBatchNorm,
    MaskedPerStream,
    PerStream,
)
from icefall_attn.nn.positions import AbsolutePositions
from icefall_attn.nn.subsampling import ConvSubsampling


FRAMES_PER_SECOND = 25  # after subsampling


@dataclass
class ConformerConfig:
    """The encoder's sizes and choices.

    Attributes:
      feature_dim: bins F of the features.
      dim: width D.
      num_layers: blocks.
      heads: attention heads H; they divide D.
      feed_forward: ``ffn``, ``glu`` (gated by Swish, with two thirds of the width) or ``glu_sigmoid``.
      feed_forward_dim: hidden width of the feed-forward modules.
      convolution: whether blocks have a convolution module; without it this is a Transformer.
      kernel_size: frames seen by the depthwise convolution, odd.
      causal_conv: it sees no frame after its own, as it does in all contexts but ``full`` anyway.
      conv_norm: ``batch`` or ``layer`` normalisation in the convolution module.
      subsampling_channels: channels of the front-end's convolutions; 0 takes D.
      dropout: probability, everywhere in the blocks.
      input_positions: absolute positions at the input: ``auto`` asks the attention mechanism,
        ``absolute`` and ``none`` decide.
      attention: the self-attention mechanism and its options.
      context: which frames it sees, and its options.
    """

    feature_dim: int = 80
    dim: int = 256
    num_layers: int = 12
    heads: int = 4
    feed_forward: str = "ffn"
    feed_forward_dim: int = 1024
    convolution: bool = True
    kernel_size: int = 15
    causal_conv: bool = False
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
            raise ValueError(f"attention.kind={kind}: {reason}")

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
        self.norm_in = make_norm(config)
        feed_forward = FEED_FORWARDS[config.feed_forward]
        self.feed_forward_in = feed_forward(dim, hidden, dropout)
        self.norm_attention = make_norm(config)
        self.attention = make_attention(
            config.attention, dim, config.heads, dropout, layer, config.context.kind
        )
        self.dropout = Dropout(dropout)
        self.norm_conv: Optional[nn.Module] = None
        self.conv: Optional[nn.Module] = None
        if config.convolution:
            self.norm_conv = make_norm(config)
            self.conv = make_convolution(config)
        self.norm_out = make_norm(config)
        self.feed_forward_out = feed_forward(dim, hidden, dropout)
        self.norm = make_norm(config)

    def forward(self, x: Tensor, context: AttentionContext) -> Tensor:
        """x: ``(B, T', D)``. Returns ``(B, T', D)``."""
        x = torch.add(x, self.feed_forward_in(self.norm_in(x)), alpha=0.5)
        x = x + self.dropout(self.attention(self.norm_attention(x), context))
        if self.conv is not None and self.norm_conv is not None:
            x = x + self.conv(self.norm_conv(x), context.valid)
        x = torch.add(x, self.feed_forward_out(self.norm_out(x)), alpha=0.5)
        return self.norm(x)


def make_norm(config: ConformerConfig) -> nn.Module:
    """Layer normalisation; the two streams of ``dcn`` have one each."""
    if config.context.kind == "dcn":
        return PerStream(nn.LayerNorm(config.dim), nn.LayerNorm(config.dim))
    return nn.LayerNorm(config.dim)


def make_convolution(config: ConformerConfig) -> nn.Module:
    """The convolution module that fits the context."""
    make = MaskedBatchNorm if config.conv_norm == "batch" else FrameNorm
    norm = make(config.dim)
    if config.context.kind == "dcn":
        norm = MaskedPerStream(norm, make(config.dim))
    sizes = config.dim, config.kernel_size, norm, config.dropout
    if config.context.kind == "csa":
        csa = config.context.csa
        return ChunkedConvolution(*sizes, csa.hop, csa.hop + csa.overlap)
    return ConvolutionModule(
        *sizes, config.causal_conv or config.context.kind != "full"
    )


class Conformer(nn.Module):
    """Features to encoder frames."""

    def __init__(self, config: ConformerConfig):
        super().__init__()
        self.config = config
        self.dim = config.dim
        self.view = make_view(config.context, config.attention.kind)
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
        outputs, lengths, _ = self.layers(x, lengths, [])
        return outputs[-1], lengths

    def layers(
        self, x: Tensor, lengths: Tensor, tap: List[int]
    ) -> Tuple[List[Tensor], Tensor, Optional[Tensor]]:
        """Like `forward`, with more to give.

        The outputs of the blocks in ``tap``, from 1, come before the last one's; and in training the
        distance ``(B,)`` between the two streams of ``dcn``, None in other contexts (see `DualView`).
        """
        x = x.masked_fill(~valid_mask(lengths, x.size(1)).unsqueeze(2), 0.0)
        x, lengths = self.subsampling(x, lengths)
        valid = valid_mask(lengths, x.size(1))
        x, frames = self.positions(x), x.size(1)
        x, seen = self.view.enter(x, valid)
        context = self.view.context(seen, x.dtype, self.shared(frames))
        outputs: List[Tensor] = []
        for index, block in enumerate(self.blocks):
            x = block(x, context)
            if index + 1 in tap:
                outputs.append(self.view.leave(x, frames))
        distance = self.view.distance(x, seen) if self.training else None
        x = self.view.leave(x, frames)
        outputs.append(x.masked_fill(~valid.unsqueeze(2), 0.0))
        return outputs, lengths, distance

    @torch.jit.unused
    def init_stream(self, batch_size: int) -> EncoderState:
        """The state of streams that begin together; see `stream`."""
        return init_state(self, batch_size)

    @torch.jit.unused
    def step(
        self, features: Tensor, lengths: Tensor, state: EncoderState, final: Tensor
    ) -> Tuple[Tensor, Tensor, EncoderState]:
        """The next pieces of streams; see `stream.step`."""
        return step(self, features, lengths, state, final)

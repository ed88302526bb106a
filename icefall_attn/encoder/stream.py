"""The encoder step by step: pieces of many streams, each come to a place of its own.

What comes out is what the masked pass gives for whole utterances, whatever the pieces are. A
state is a tuple of tensors whose first dimension is that of the streams.
"""

from typing import Any, Callable, List, NamedTuple, Sequence, Tuple, Union

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from icefall_attn.encoder.stream_layers import (
    LayerState,
    init_layer,
    step_dual_layer,
    step_layer,
)
from icefall_attn.errors import UserError
from icefall_attn.nn.lengths import valid_mask
from icefall_attn.nn.positions import AbsolutePositions
from icefall_attn.nn.ragged import append, longest, window


class EncoderState(NamedTuple):
    """What the encoder keeps of B streams.

    Attributes:
      features: ``(B, 6, F)``, input frames that the front-end needs again.
      feature_count: ``(B,)``, how many.
      arrived: ``(B,)``, frames that have left the front-end.
      held: ``(B, P, D)``, frames of an unfinished chunk of ``csa``, or those that the non-causal stream
        of ``dcn`` has still to see.
      held_count: ``(B,)``, how many, in ``csa``.
      layers: of the blocks.
    """

    features: Tensor
    feature_count: Tensor
    arrived: Tensor
    held: Tensor
    held_count: Tensor
    layers: List[LayerState]


def init_state(encoder: nn.Module, batch_size: int) -> EncoderState:
    """The state of ``batch_size`` streams that begin together.

    Raises:
      UserError: if the encoder's context is the whole utterance.
    """
    config = encoder.config
    kind, limits = config.context.kind, config.context.chosen.window()
    if kind == "full":
        raise UserError(
            "a model with context.kind=full needs whole utterances and cannot run as a stream; train "
            "one with context.kind causal, rsa, chunk, csa or dcn"
        )
    x = encoder.subsampling.linear.weight
    count = torch.zeros(batch_size, dtype=torch.int64, device=x.device)
    held = {"csa": limits.chunk + limits.ahead - 1, "dcn": limits.ahead}.get(kind, 0)
    return EncoderState(
        features=x.new_zeros(batch_size, 6, config.feature_dim),
        feature_count=count,
        arrived=count,
        held=x.new_zeros(batch_size, held, config.dim),
        held_count=count,
        layers=[
            init_layer(block, limits, kind, batch_size) for block in encoder.blocks
        ],
    )


def step(
    encoder: nn.Module,
    features: Tensor,
    lengths: Tensor,
    state: EncoderState,
    final: Tensor,
) -> Tuple[Tensor, Tensor, EncoderState]:
    """The next pieces of B streams.

    Args:
      encoder: the encoder, in evaluation mode.
      features: ``(B, n, F)``, what follows the lengths has no meaning.
      lengths: ``(B,)`` valid frames, 0 allowed.
      state: of the streams.
      final: ``(B,)`` bool: their streams end with this piece, and all that is left comes out.

    Returns:
      The encoder frames that became ready, ``(B, m, D)``, 0 beyond their numbers; these, ``(B,)``; and the
      next state, which has no meaning for streams that have ended.
    """
    x, lengths, state = _front_end(encoder, features, lengths, state)
    kind = encoder.config.context.kind
    run = {"csa": _run_chunks, "dcn": _run_both}.get(kind, _run_window)
    x, lengths, state = run(encoder, x, lengths, final, state)
    x = x[:, : longest(lengths)]
    return (
        x.masked_fill(~valid_mask(lengths, x.size(1)).unsqueeze(2), 0.0),
        lengths,
        state,
    )


def _front_end(
    encoder: nn.Module, features: Tensor, lengths: Tensor, state: EncoderState
) -> Tuple[Tensor, Tensor, EncoderState]:
    """Subsampling and positions."""
    features = features.masked_fill(
        ~valid_mask(lengths, features.size(1)).unsqueeze(2), 0.0
    )
    features = append(state.features, state.feature_count, features)
    count = state.feature_count + lengths
    x, frames = encoder.subsampling(features, count)
    x = x[:, : longest(frames)]
    if isinstance(encoder.positions, AbsolutePositions):
        x = encoder.positions.step(x, state.arrived)
    x = x.masked_fill(~valid_mask(frames, x.size(1)).unsqueeze(2), 0.0)
    state = state._replace(
        features=window(features, 4 * frames, state.features.size(1)),
        feature_count=count - 4 * frames,
        arrived=state.arrived + frames,
    )
    return x, frames, state


def _run_window(
    encoder: nn.Module, x: Tensor, lengths: Tensor, final: Tensor, state: EncoderState
) -> Tuple[Tensor, Tensor, EncoderState]:
    """The blocks, each with the frames that it can finish."""
    limits, layers = encoder.config.context.chosen.window(), []
    for block, layer in zip(encoder.blocks, state.layers):
        x, lengths, layer = step_layer(block, limits, x, lengths, final, layer)
        layers.append(layer)
    return x, lengths, state._replace(layers=layers)


def _run_chunks(
    encoder: nn.Module, x: Tensor, lengths: Tensor, final: Tensor, state: EncoderState
) -> Tuple[Tensor, Tensor, EncoderState]:
    """The blocks on the next chunk with its copies, as often as some stream has one."""
    limits = encoder.config.context.chosen.window()
    hop, width = limits.chunk, limits.chunk + limits.ahead
    x = append(state.held, state.held_count, x)
    count = state.held_count + lengths
    out, ready = x[:, :0], torch.zeros_like(lengths)
    while True:
        goes = (count >= width) | (final & (count > 0))
        if not bool(goes.any()):
            break
        piece = count.clamp(max=width) * goes
        own = count.clamp(max=hop) * goes
        y, layers = x[:, : longest(piece)], []
        for block, layer in zip(encoder.blocks, state.layers):
            y, _, layer = step_layer(block, limits, y, piece, final, layer, own)
            layers.append(layer)
        out = append(out, ready, y[:, :hop])
        ready, count = ready + own, count - own
        x, state = window(x, own, x.size(1)), state._replace(layers=layers)
    held = window(x, torch.zeros_like(count), state.held.size(1))
    return out, ready, state._replace(held=held, held_count=count)


def _run_both(
    encoder: nn.Module, x: Tensor, lengths: Tensor, final: Tensor, state: EncoderState
) -> Tuple[Tensor, Tensor, EncoderState]:
    """The blocks on the causal stream and, ``look_ahead`` frames behind it, the non-causal one."""
    config = encoder.config.context.dcn
    limits, strict = config.window(), config.boundary == "strict"
    ahead, arrived = limits.ahead, state.layers[0].arrived
    both = torch.cat((state.held, x), dim=1)
    late = lengths + ahead * final
    width = longest(late)
    if width == 0:
        return x[:, :0], lengths, state
    x = F.pad(x, (0, 0, 0, width - x.size(1)))
    places = torch.arange(width, device=x.device)
    missing = (ahead - arrived).clamp(min=0)  # times before the first
    valid = places < torch.cat((lengths, late)).unsqueeze(1)
    valid = valid & (places >= torch.cat((0 * missing, missing)).unsqueeze(1))
    y = torch.cat((x, both[:, :width]))
    y = y.masked_fill(~valid.unsqueeze(2), 0.0)
    layers = []
    for block, layer in zip(encoder.blocks, state.layers):
        y, layer = step_dual_layer(block, limits, strict, y, lengths, valid, layer)
        layers.append(layer)
    y = window(y[x.size(0) :], missing, width)
    held = window(both, lengths, ahead)
    ready = (late - missing).clamp(min=0)
    return y, ready, state._replace(held=held, layers=layers)


def select(state: Any, rows: Union[Tensor, List[int]]) -> Any:
    """The state of some of the streams, the numbers ``rows`` of n of them, in that order."""
    return each_tensor(lambda x: x[rows], state)


def stack_states(states: Sequence[Any]) -> Any:
    """One state of the streams of several of the same model, in their order."""
    first = states[0]
    if len(states) == 1 or first is None:
        return first
    if isinstance(first, Tensor):
        return _stack(states)
    parts = [stack_states(parts) for parts in zip(*states)]
    return type(first)(*parts) if hasattr(first, "_fields") else parts


def each_tensor(function: Callable[[Tensor], Tensor], state: Any) -> Any:
    """A state with ``function`` of each of its tensors: copies it, moves it, counts its bytes."""
    if state is None:
        return None
    if isinstance(state, Tensor):
        return function(state)
    parts = [each_tensor(function, part) for part in state]
    return type(state)(*parts) if hasattr(state, "_fields") else parts


def state_bytes(state: Any) -> int:
    """The size of a state."""
    sizes: List[int] = []

    def add(x: Tensor) -> Tensor:
        sizes.append(x.numel() * x.element_size())
        return x

    each_tensor(add, state)
    return sum(sizes)


def _stack(tensors: Sequence[Tensor]) -> Tensor:
    """Of buffers, the second dimension may differ: they end with the same frame."""
    if tensors[0].dim() > 1:
        width = max(x.size(1) for x in tensors)
        tensors = [
            torch.cat(
                (x.new_zeros(x.size(0), width - x.size(1), *x.shape[2:]), x), dim=1
            )
            for x in tensors
        ]
    return torch.cat(list(tensors))

"""One block of the encoder on pieces of streams.

Keys and values wait in buffers that are aligned at the next query: a buffer of ``L + P`` frames holds
the L before it and up to P after it, so that one shift serves the relative positions of streams that
have come to different places. A frame's time is its number in its stream, from 0; places with other
times are masked.
"""

from typing import NamedTuple, Optional, Tuple

import torch
from torch import Tensor, nn

from icefall_attn.attention.contexts import Window, ready, sees, unlimited
from icefall_attn.attention.dual import sees_causal, sees_non_causal
from icefall_attn.attention.masking import hidden_bias
from icefall_attn.nn.lengths import valid_mask
from icefall_attn.nn.ragged import append, longest, window


class LayerState(NamedTuple):
    """What a block keeps of B streams.

    Attributes:
      arrived: ``(B,)`` frames that have come.
      done: ``(B,)`` frames that have left; in ``dcn`` the causal ones.
      waiting: ``(B, P, D)``, frames that have come and not left.
      query: ``(B, P, H, .)``, their queries.
      key, value: ``(B, L + P, H, .)``, from time ``done - L`` on; in ``dcn`` those of the non-causal stream,
        the L before its next frame.
      own_key, own_value: ``(B, look_ahead, H, .)``, the last ones of the causal stream of ``dcn``.
      past: ``(B, H, ., .)``, what stands for keys before these, if the mechanism can sum them up.
      conv: ``(B, 1 or 2, kernel_size - 1, D)``, the convolution's past, of each of ``dcn``'s two streams.
    """

    arrived: Tensor
    done: Tensor
    waiting: Tensor
    query: Tensor
    key: Tensor
    value: Tensor
    own_key: Tensor
    own_value: Tensor
    past: Tensor
    conv: Tensor


def init_layer(
    block: nn.Module, limits: Window, kind: str, batch_size: int
) -> LayerState:
    """The state of ``batch_size`` streams that begin."""
    x = block.norm_in(_parameter(block).new_zeros(2, 1, _parameter(block).size(0)))
    time = torch.zeros(1, 1, dtype=torch.int64, device=x.device)
    query, key, value = [y.transpose(1, 2)[:1] for y in block.attention.parts(x, time)]
    waits = limits.chunk - 1 + limits.ahead if kind in ("rsa", "chunk") else 0
    own = limits.ahead if kind == "dcn" else 0
    before = 0 if unlimited(limits.back) else limits.back

    def empty(like: Tensor, *sizes: int) -> Tensor:
        return like.new_zeros(batch_size, *sizes, *like.shape[2:])

    past = empty(value, 0)
    if sums_up(block.attention, limits):
        past = value.new_zeros(batch_size, *key.shape[2:], value.size(3))
    seen = 0 if block.conv is None else block.conv.past
    conv = empty(x, 2 if kind == "dcn" else 1, seen)
    return LayerState(
        arrived=time.new_zeros(batch_size),
        done=time.new_zeros(batch_size),
        waiting=empty(x, waits),
        query=empty(query, waits),
        key=empty(key, before + waits),
        value=empty(value, before + waits),
        own_key=empty(key, own),
        own_value=empty(value, own),
        past=past,
        conv=conv,
    )


def sums_up(attention: nn.Module, limits: Window) -> bool:
    """Whether keys that all later queries see are added up and not kept."""
    return hasattr(attention, "absorb") and unlimited(limits.back)


def step_layer(
    block: nn.Module,
    limits: Window,
    x: Tensor,
    lengths: Tensor,
    final: Tensor,
    state: LayerState,
    commit: Optional[Tensor] = None,
) -> Tuple[Tensor, Tensor, LayerState]:
    """A block on the next frames of streams in a context of one group of keys.

    Args:
      block: the block.
      limits: which keys a query sees.
      x: ``(B, n, D)``.
      lengths: ``(B,)`` valid frames.
      final: ``(B,)`` bool, whether they are the last.
      state: of the block.
      commit: ``(B,)``, for chunks with copies: x is a chunk, and the state keeps this many frames
        of it, as if the others had not come. All of x is given back.

    Returns:
      The frames that became ready, ``(B, m, D)``, how many they are, ``(B,)``, and the next state.
    """
    attention = block.attention
    x = torch.add(x, block.feed_forward_in(block.norm_in(x)), alpha=0.5)
    times = state.arrived.unsqueeze(1) + torch.arange(x.size(1), device=x.device)
    times = times * valid_mask(lengths, x.size(1))
    query, key, value = [
        y.transpose(1, 2) for y in attention.parts(block.norm_attention(x), times)
    ]
    count, waits = state.arrived - state.done, state.waiting.size(1)
    before = state.key.size(1) - waits
    x = append(state.waiting, count, x)
    query = append(state.query, count, query)
    key = append(state.key, count + before, key)
    value = append(state.value, count + before, value)
    arrived = state.arrived + lengths
    goes = torch.where(final, arrived, ready(limits, arrived))
    goes = arrived if commit is not None else goes
    goes = (goes - state.done).clamp(min=0)
    width = longest(goes)
    places = torch.arange(max(width, key.size(1)), device=x.device)
    query_time = state.done[:, None, None] + places[:width, None]
    key_time = (state.done[:, None] - before + places[: key.size(1)]).unsqueeze(1)
    visible = (key_time >= 0) & (key_time < arrived[:, None, None])
    if commit is not None:  # all queries see what the chunk's first one does
        query_time = state.done[:, None, None].expand_as(query_time)
    visible = visible & sees(limits, query_time, key_time)
    valid = places[:width] < goes.unsqueeze(1)
    out, seen = x[:, :0], state.conv[:, 0]
    if width > 0:
        bias = hidden_bias(visible.unsqueeze(1), key.dtype)
        queries = query[:, :width].transpose(1, 2)
        weights = attention.weigh(
            attention.scores(queries, key.transpose(1, 2), before), bias
        )
        out = attention.mix(weights, value.transpose(1, 2))
        if sums_up(attention, limits):
            out = out + attention.recall(state.past, queries)
        out, seen = after_attention(
            block, x[:, :width] + attention.finish(out), valid, seen
        )
    commit = goes if commit is None else commit
    done = state.done + commit
    past = state.past
    if sums_up(attention, limits):
        past, keep = absorb(attention, past, key, value, commit), 0
    else:
        keep = longest(done) if unlimited(limits.back) else limits.back
    state = state._replace(
        arrived=torch.minimum(arrived, done + waits),
        done=done,
        waiting=window(x, commit, waits),
        query=window(query, commit, waits),
        key=window(key, commit + (before - keep), keep + waits),
        value=window(value, commit + (before - keep), keep + waits),
        past=past,
        conv=window(seen, commit, state.conv.size(2)).unsqueeze(1),
    )
    return out, goes, state


def step_dual_layer(
    block: nn.Module,
    limits: Window,
    strict: bool,
    x: Tensor,
    lengths: Tensor,
    valid: Tensor,
    state: LayerState,
) -> Tuple[Tensor, LayerState]:
    """A block on the next frames of both streams of ``dcn``.

    Args:
      block: the block.
      limits: which keys a non-causal query sees.
      strict: the causal queries' boundary.
      x: ``(2 B, n, D)``; the causal frames from time ``arrived`` on, then the non-causal ones from time
        ``arrived - look_ahead`` on.
      lengths: ``(B,)`` valid causal frames.
      valid: ``(2 B, n)`` bool.
      state: of the block.

    Returns:
      ``(2 B, n, D)`` and the next state.
    """
    attention, ahead, before = block.attention, limits.ahead, state.key.size(1)
    places = torch.arange(x.size(1) + max(ahead, before), device=x.device)
    time = torch.stack((state.arrived, state.arrived - ahead)).unsqueeze(2)
    time = time + places[: x.size(1)]  # (2, B, n)
    x = torch.add(x, block.feed_forward_in(block.norm_in(x)), alpha=0.5)
    query, key, value = attention.parts(
        block.norm_attention(x), time.flatten(0, 1) * valid
    )
    own_key, key = [y.transpose(1, 2) for y in key.chunk(2)]
    own_value, value = [y.transpose(1, 2) for y in value.chunk(2)]
    own_key = torch.cat((state.own_key, own_key), dim=1)
    own_value = torch.cat((state.own_value, own_value), dim=1)
    key = torch.cat((state.key, key), dim=1)
    value = torch.cat((state.value, value), dim=1)
    # which of them are there
    own_time = state.arrived.unsqueeze(1) - ahead + places[: own_key.size(1)]
    key_time = state.arrived.unsqueeze(1) - ahead - before + places[: key.size(1)]
    own_valid, key_valid = valid.chunk(2)
    own_valid = torch.cat((own_time[:, :ahead] >= 0, own_valid), dim=1)
    key_valid = torch.cat((key_time[:, :before] >= 0, key_valid), dim=1)
    outs = []
    for stream, queries in enumerate(query.chunk(2)):
        lead = 0 if stream == 1 else ahead
        at = time[stream].unsqueeze(2)
        far = sees_non_causal(limits, strict, stream, at, key_time.unsqueeze(1))
        near = sees_causal(limits, strict, stream, at, own_time.unsqueeze(1))
        visible = torch.cat(
            (far & key_valid.unsqueeze(1), near & own_valid.unsqueeze(1)), dim=2
        )
        scores = (
            attention.scores(queries, key.transpose(1, 2), before + lead),
            attention.scores(queries, own_key.transpose(1, 2), lead),
        )
        bias = hidden_bias(visible.unsqueeze(1), key.dtype)
        weights = attention.weigh(torch.cat(scores, dim=3), bias)
        both = torch.cat((value, own_value), dim=1).transpose(1, 2)
        out = attention.mix(weights, both)
        if sums_up(attention, limits):
            out = out + attention.recall(state.past, queries)
        outs.append(out)
    x = x + attention.finish(torch.cat(outs))
    x, seen = after_attention(block, x, valid, state.conv.transpose(0, 1).flatten(0, 1))
    arrived = state.arrived + lengths
    past = state.past
    if sums_up(attention, limits):
        keys = key * key_valid[:, :, None, None]
        past, keep = absorb(attention, past, keys, value, lengths), 0
    elif unlimited(limits.back):
        keep = max(0, longest(arrived) - ahead)
    else:
        keep = limits.back
    seen = window(seen, torch.cat((lengths, lengths)), state.conv.size(2))
    state = state._replace(
        arrived=arrived,
        done=arrived,
        key=window(key, lengths + (before - keep), keep),
        value=window(value, lengths + (before - keep), keep),
        own_key=window(own_key, lengths, ahead),
        own_value=window(own_value, lengths, ahead),
        past=past,
        conv=torch.stack(seen.chunk(2), dim=1),
    )
    return x, state


def after_attention(
    block: nn.Module, x: Tensor, valid: Tensor, seen: Tensor
) -> Tuple[Tensor, Tensor]:
    """The rest of a block, and its convolution's past ``seen`` with what it saw now."""
    if block.conv is not None:
        out, seen = block.conv.step(block.norm_conv(x), valid, seen)
        x = x + out
    x = torch.add(x, block.feed_forward_out(block.norm_out(x)), alpha=0.5)
    return block.norm(x), seen


def absorb(
    attention: nn.Module, past: Tensor, key: Tensor, value: Tensor, count: Tensor
) -> Tensor:
    """``past`` with the first ``count`` ``(B,)`` of ``(B, K, H, .)`` keys and values."""
    taken = torch.arange(key.size(1), device=key.device) < count.unsqueeze(1)
    key = key.masked_fill(~taken[:, :, None, None], 0.0)
    return attention.absorb(past, key.transpose(1, 2), value.transpose(1, 2))


def _parameter(block: nn.Module) -> Tensor:
    return next(block.norm.parameters())

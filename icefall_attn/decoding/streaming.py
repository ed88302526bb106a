"""Utterances recognised as streams: frames come piece by piece, and nothing is looked at before it comes."""

from typing import Callable, Dict, List

import torch
from torch import Tensor

from icefall_attn.decoding.beam import advance_beams
from icefall_attn.decoding.config import SearchConfig
from icefall_attn.decoding.greedy import advance_greedily
from icefall_attn.decoding.results import Hypothesis, rank
from icefall_attn.decoding.streams import Stream, start_streams
from icefall_attn.encoder.stream import select
from icefall_attn.errors import UserError

#: Searches of streams: (model, streams, encoder_out, lengths, config) to streams.
ADVANCES: Dict[str, Callable[..., List[Stream]]] = {
    "greedy_search": advance_greedily,
    "modified_beam_search": advance_beams,
}


@torch.no_grad()
def recognize_streams(
    model, features: Tensor, lengths: Tensor, config: SearchConfig, piece: int
) -> List[List[Hypothesis]]:
    """What `recognize` finds, with the encoder and the search fed piece by piece.

    Args:
      model: a transducer in evaluation mode whose context can stream.
      features: (B, T, F), on the model's device; B streams that begin together.
      lengths: (B,) int64 feature frames.
      config: the search.
      piece: feature frames (10 ms) in a piece.

    Returns:
      N-best list of each stream, best first.

    Raises:
      UserError: the model or the search needs whole utterances.
    """
    check_streamable(config)
    advance = ADVANCES[config.method]
    state = model.init_stream(len(lengths))
    streams = start_streams(model, len(lengths), features.device)
    alive = torch.arange(len(lengths), device=lengths.device)
    begin = 0
    while len(alive) > 0:
        left = lengths[alive] - begin
        final = left <= piece
        arrived = left.clamp(max=piece)
        out, ready, state = model.encode_step(
            features[alive, begin : begin + piece], arrived, state, final
        )
        chosen = [streams[row] for row in alive.tolist()]
        for row, stream in zip(
            alive.tolist(), advance(model, chosen, out, ready, config)
        ):
            streams[row] = stream
        going = (~final).nonzero().squeeze(1)
        alive, state = alive[going], select(state, going)
        begin += piece
    return [rank(stream.scored(), config) for stream in streams]


def check_streamable(config: SearchConfig) -> None:
    """Raises `UserError` for a search that needs whole utterances."""
    if config.method not in ADVANCES:
        raise UserError(
            f"search.method={config.method} needs whole utterances; streams are searched by"
            f" {' or '.join(ADVANCES)}"
        )

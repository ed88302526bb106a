"""Greedy search: the best symbol, frame by frame."""

from typing import List, Sequence

import torch
from torch import Tensor

from icefall_attn.decoding.config import SearchConfig
from icefall_attn.decoding.frames import active_counts, by_falling_length
from icefall_attn.decoding.results import Hypothesis
from icefall_attn.decoding.streams import Stream, join_predictors, start_streams


def greedy_search(
    model, encoder_out: Tensor, lengths: Tensor, config: SearchConfig
) -> List[List[Hypothesis]]:
    """Takes the most probable symbol until it is blank or the frame's quota is used up.

    The predictor moves only for the utterances that emitted, and only on a symbol; a frame
    emits at most ``config.max_symbols_per_frame`` symbols, so the search always ends.

    Args:
      model, encoder_out (B, T', D), lengths (B,), config: see `search`.

    Returns:
      One hypothesis per utterance; its score sums the log-probabilities of the choices
      made. A frame that ends by its quota adds no blank, so that with a quota of 1 the
      score is that of modified_beam_search with one hypothesis.
    """
    streams = start_streams(model, len(lengths), encoder_out.device)
    streams = advance_greedily(model, streams, encoder_out, lengths, config)
    return [stream.scored() for stream in streams]


def advance_greedily(
    model,
    streams: Sequence[Stream],
    encoder_out: Tensor,
    lengths: Tensor,
    config: SearchConfig,
) -> List[Stream]:
    """Reads the next frames of streams: in whatever pieces they come, the result is the same.

    Args:
      streams: B of them, see `start_streams`.
      encoder_out: (B, n, D) the next frames of each.
      lengths: (B,) how many of them there are; 0 leaves a stream as it is.
    """
    device = encoder_out.device
    order, encoder_out, lengths = by_falling_length(encoder_out, lengths)
    ordered = [streams[i] for i in order.tolist()]
    projected = model.joiner.project_encoder(encoder_out)
    predictor = join_predictors(model, ordered, 1)
    scores = torch.stack([stream.offset for stream in ordered])
    tokens = [list(stream.hypotheses[0].tokens) for stream in ordered]
    frames = [list(stream.hypotheses[0].frames) for stream in ordered]

    for t, active in enumerate(active_counts(lengths)):
        rows = torch.arange(active, device=device)
        for _ in range(config.max_symbols_per_frame):
            logits = model.joiner(projected[rows, t], predictor.output[rows])
            log_probs, symbols = logits.float().log_softmax(dim=-1).max(dim=-1)
            scores[rows] += log_probs.double()
            emitted = symbols != model.blank_id
            rows, symbols = rows[emitted], symbols[emitted]
            if rows.numel() == 0:
                break
            predictor.advance(rows, symbols)
            for row, symbol in zip(rows.tolist(), symbols.tolist()):
                tokens[row].append(symbol)
                frames[row].append(ordered[row].frames + t)

    results = list(streams)
    for row, (index, length) in enumerate(zip(order.tolist(), lengths.tolist())):
        results[index] = Stream(
            hypotheses=[Hypothesis(tokens[row], frames[row])],
            output=predictor.output[row : row + 1],
            state=[part[row : row + 1] for part in predictor.state],
            scores=ordered[row].scores,
            offset=scores[row],
            frames=ordered[row].frames + length,
        )
    return results

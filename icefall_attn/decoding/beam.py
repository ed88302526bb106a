"""Beam search with at most one symbol a frame: one loop, pluggable scorers."""

from typing import List, Protocol, Sequence, Tuple

import torch
from torch import Tensor

from icefall_attn.decoding.beam_state import Beam
from icefall_attn.decoding.config import SearchConfig
from icefall_attn.decoding.frames import active_counts, by_falling_length
from icefall_attn.decoding.histories import Histories
from icefall_attn.decoding.results import Hypothesis, rank
from icefall_attn.decoding.streams import Stream, join_predictors, start_streams


class Scorer(Protocol):
    """Adds to the score of every symbol but blank, for example a language model.

    It has the predictor's interface: the first step feeds blank (start of sentence) to
    the initial state, and states are lists of batch-first tensors.
    """

    def init_state(self, batch_size: int, device: torch.device) -> List[Tensor]:
        """State before the start of sentence."""

    def step(self, tokens: Tensor, state: List[Tensor]) -> Tuple[Tensor, List[Tensor]]:
        """Tokens (N,) and their state to scaled log scores (N, V) of the next symbol (the
        blank column is ignored) and the new state."""


def modified_beam_search(
    model,
    encoder_out: Tensor,
    lengths: Tensor,
    config: SearchConfig,
    scorers: Sequence[Scorer] = (),
) -> List[List[Hypothesis]]:
    """Keeps the ``config.beam_size`` most probable label sequences of every utterance.

    Each frame emits blank or one symbol. Two ways to the same label sequence are merged by
    log-add *before* the beam is cut, so that all hypotheses of a beam differ and none of
    its places is lost to a duplicate. With a beam that never cuts, a score is the log of
    the sum over all alignments with at most one symbol a frame.

    Args:
      model, encoder_out (B, T', D), lengths (B,), config: see `search`.
      scorers: what is added to the model's log-probabilities of symbols.

    Returns:
      Up to ``config.nbest`` hypotheses per utterance, best first by log-probability or, with
      ``config.length_norm``, by log-probability over (number of tokens + 1). Frames of
      tokens are those of the more probable of two merged ways.
    """
    streams = start_streams(model, len(lengths), encoder_out.device)
    streams = advance_beams(model, streams, encoder_out, lengths, config, scorers)
    return [rank(stream.scored(), config) for stream in streams]


def advance_beams(
    model,
    streams: Sequence[Stream],
    encoder_out: Tensor,
    lengths: Tensor,
    config: SearchConfig,
    scorers: Sequence[Scorer] = (),
) -> List[Stream]:
    """Reads the next frames of streams: in whatever pieces they come, the result is the same.

    Args:
      streams: B of them, see `start_streams`.
      encoder_out: (B, n, D) the next frames of each.
      lengths: (B,) how many of them there are; 0 leaves a stream as it is.
      scorers: only where the streams begin here.
    """
    device, size = encoder_out.device, config.beam_size
    order, encoder_out, lengths = by_falling_length(encoder_out, lengths)
    ordered = [streams[i] for i in order.tolist()]
    projected = model.joiner.project_encoder(encoder_out)
    beam = Beam(ordered, size, model.blank_id, device)
    predictor = join_predictors(model, ordered, size)
    blank = torch.full((len(ordered) * size,), model.blank_id, device=device)
    histories = [predictor] + [
        Histories.start(s.step, blank, s.init_state(len(blank), device))
        for s in scorers
    ]
    ended: List[Tuple[Tensor, List[Tensor]]] = (
        []
    )  # the predictor's rows, last streams first

    counts = [*active_counts(lengths), 0]
    for t, active in enumerate(counts):
        if active < beam.batch:
            # The shorter ones are last: they end here.
            for row in range(beam.batch - 1, active - 1, -1):
                slots = slice(row * size, (row + 1) * size)
                ended.append(
                    (predictor.output[slots], [part[slots] for part in predictor.state])
                )
            left = torch.arange(active * size, device=device)
            for history in histories:
                history.select(left)
            beam.shrink(active)
        if active == 0:
            break
        grid = (active, size, -1)
        logits = model.joiner(
            projected[:active, t].unsqueeze(1), predictor.output.view(grid)
        )
        log_probs = logits.float().log_softmax(dim=-1)
        for scorer in histories[1:]:
            extra = scorer.output.view(grid).clone()
            extra[..., model.blank_id] = 0.0
            log_probs = log_probs + extra
        source, grown, tokens = beam.advance(log_probs)
        for history in histories:
            history.select(source)
            if grown.numel() > 0:
                history.advance(grown, tokens)

    results = list(streams)
    for index, length, beams, (output, state) in zip(
        order.tolist(), lengths.tolist(), beam.finish(), reversed(ended)
    ):
        alive = len(beams.hypotheses)
        results[index] = Stream(
            hypotheses=beams.hypotheses,
            output=output[:alive],
            state=[part[:alive] for part in state],
            scores=beams.scores,
            offset=beams.offset,
            frames=streams[index].frames + length,
        )
    return results

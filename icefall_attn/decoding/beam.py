"""Beam search with at most one symbol a frame: one loop, pluggable scorers."""

from typing import List, Protocol, Sequence, Tuple

import torch
from torch import Tensor

from icefall_attn.decoding.beam_state import Beam
from icefall_attn.decoding.config import SearchConfig
from icefall_attn.decoding.frames import active_counts, by_falling_length
from icefall_attn.decoding.histories import Histories, start_predictor
from icefall_attn.decoding.results import Hypothesis, rank


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
    device = encoder_out.device
    order, encoder_out, lengths = by_falling_length(encoder_out, lengths)
    projected = model.joiner.project_encoder(encoder_out)
    beam = Beam(len(order), config.beam_size, model.blank_id, device)
    rows = len(order) * config.beam_size
    blank = torch.full((rows,), model.blank_id, dtype=torch.int64, device=device)
    predictor = start_predictor(model, rows, device)
    histories = [predictor] + [
        Histories.start(s.step, blank, s.init_state(rows, device)) for s in scorers
    ]

    for t, active in enumerate(active_counts(lengths)):
        if active < beam.batch:
            # The shorter utterances are last: they end here.
            left = torch.arange(active * beam.size, device=device)
            for history in histories:
                history.select(left)
            beam.shrink(active)
        grid = (active, beam.size, -1)
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

    results: List[List[Hypothesis]] = [[] for _ in range(len(order))]
    for utterance, hypotheses in zip(order.tolist(), beam.finish()):
        results[utterance] = rank(hypotheses, config)
    return results

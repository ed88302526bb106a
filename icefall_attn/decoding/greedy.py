"""Greedy search: the best symbol, frame by frame."""

from typing import List

import torch
from torch import Tensor

from icefall_attn.decoding.config import SearchConfig
from icefall_attn.decoding.frames import active_counts, by_falling_length
from icefall_attn.decoding.histories import start_predictor
from icefall_attn.decoding.results import Hypothesis


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
    device = encoder_out.device
    order, encoder_out, lengths = by_falling_length(encoder_out, lengths)
    batch = len(order)
    projected = model.joiner.project_encoder(encoder_out)
    predictor = start_predictor(model, batch, device)
    scores = torch.zeros(batch, dtype=torch.float64, device=device)
    hypotheses = [Hypothesis() for _ in range(batch)]

    for t, active in enumerate(active_counts(lengths)):
        rows = torch.arange(active, device=device)
        for _ in range(config.max_symbols_per_frame):
            logits = model.joiner(projected[rows, t], predictor.output[rows])
            log_probs, tokens = logits.float().log_softmax(dim=-1).max(dim=-1)
            scores[rows] += log_probs.double()
            emitted = tokens != model.blank_id
            rows, tokens = rows[emitted], tokens[emitted]
            if rows.numel() == 0:
                break
            predictor.advance(rows, tokens)
            for row, token in zip(rows.tolist(), tokens.tolist()):
                hypotheses[row].tokens.append(token)
                hypotheses[row].frames.append(t)

    for hypothesis, score in zip(hypotheses, scores.tolist()):
        hypothesis.score = score
    results: List[List[Hypothesis]] = [[] for _ in range(batch)]
    for position, utterance in enumerate(order.tolist()):
        results[utterance] = [hypotheses[position]]
    return results

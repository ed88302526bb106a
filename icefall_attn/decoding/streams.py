"""What a search knows of a stream of encoder frames between two pieces of it."""

from dataclasses import dataclass
from typing import List, Sequence

import torch
from torch import Tensor

from icefall_attn.decoding.histories import Histories, predictor_step, start_predictor
from icefall_attn.decoding.results import Hypothesis


@dataclass
class Stream:
    """The live hypotheses of one stream. A search changes none of it: it makes another.

    Streams are independent of each other, so that any of them can be searched together.

    Args:
      hypotheses: N of them, all different; without scores.
      output: (N, J) of the predictor after each.
      state: of the predictor, tensors (N, ...).
      scores: (N,) float32 log-probabilities, less ``offset``.
      offset: () float64.
      frames: encoder frames read so far.
    """

    hypotheses: List[Hypothesis]
    output: Tensor
    state: List[Tensor]
    scores: Tensor
    offset: Tensor
    frames: int = 0

    def scored(self) -> List[Hypothesis]:
        """The hypotheses with their scores."""
        totals = (self.scores.double() + self.offset).tolist()
        return [
            Hypothesis(h.tokens, h.frames, score)
            for h, score in zip(self.hypotheses, totals)
        ]

    def best(self) -> Hypothesis:
        """The most probable hypothesis so far."""
        return max(self.scored(), key=lambda hypothesis: hypothesis.score)


def start_streams(model, count: int, device) -> List[Stream]:
    """Streams of which nothing has been read: one empty hypothesis each."""
    predictor = start_predictor(model, count, device)
    return [
        Stream(
            hypotheses=[Hypothesis()],
            output=predictor.output[row : row + 1],
            state=[part[row : row + 1] for part in predictor.state],
            scores=torch.zeros(1, device=device),
            offset=torch.zeros((), dtype=torch.float64, device=device),
        )
        for row in range(count)
    ]


def join_predictors(model, streams: Sequence[Stream], size: int) -> Histories:
    """The predictor's rows of all streams, ``size`` each; those of no hypothesis hold anything."""

    def joined(parts: List[Tensor]) -> Tensor:
        return torch.cat([_filled(part, size) for part in parts])

    output = joined([stream.output for stream in streams])
    states = zip(*(stream.state for stream in streams))
    return Histories(predictor_step(model), output, [joined(list(s)) for s in states])


def _filled(rows: Tensor, size: int) -> Tensor:
    """(N, ...) to (size, ...), the first row standing in for what is missing."""
    missing = size - rows.size(0)
    if missing == 0:
        return rows
    return torch.cat([rows, rows[:1].expand(missing, *rows.shape[1:])])

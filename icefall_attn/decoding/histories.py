"""What a predictor (or a language model) knows about many label histories at once."""

from typing import Callable, List, Tuple

import torch
from torch import Tensor


class Histories:
    """Rows of (output, state), one per label history, advanced one token at a time.

    A row is computed once, when its history is new, and then copied by index: with an LSTM
    every hypothesis has its exact state and costs one step per token, not per frame.

    Args:
      step: ``(tokens (N,), state) -> (output (N, ...), state)``; states are lists of
        batch-first tensors.
      output: (N, ...) of the rows so far.
      state: state of the rows so far.
    """

    def __init__(self, step: Callable, output: Tensor, state: List[Tensor]) -> None:
        self._step = step
        self.output = output
        self.state = state

    @classmethod
    def start(cls, step: Callable, tokens: Tensor, state: List[Tensor]) -> "Histories":
        """Feeds the start-of-sentence ``tokens`` (N,) to the initial ``state``."""
        output, state = step(tokens, state)
        return cls(step, output, list(state))

    def select(self, rows: Tensor) -> None:
        """Keeps rows by index (N',) int64; an index may be repeated."""
        self.output = self.output[rows]
        self.state = [s[rows] for s in self.state]

    def advance(self, rows: Tensor, tokens: Tensor) -> None:
        """Appends ``tokens`` (M,) to the histories in ``rows`` (M,); others stay."""
        output, state = self._step(tokens, [s[rows] for s in self.state])
        self.output[rows] = output
        for old, new in zip(self.state, state):
            old[rows] = new


def predictor_step(model) -> Callable[[Tensor, List[Tensor]], Tuple[Tensor, List]]:
    """The predictor as a step whose output (N, J) is already projected for the joiner."""

    def step(tokens: Tensor, state: List[Tensor]) -> Tuple[Tensor, List[Tensor]]:
        output, state = model.predictor.step(tokens, state)
        return model.joiner.project_predictor(output), state

    return step


def start_predictor(model, rows: int, device) -> Histories:
    """Predictor histories of ``rows`` empty hypotheses."""
    return Histories.start(
        predictor_step(model),
        torch.full((rows,), model.blank_id, dtype=torch.int64, device=device),
        model.predictor.init_state(rows, device),
    )

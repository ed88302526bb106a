"""Predictor states for k2's finite contexts."""

from typing import Optional

import torch
from torch import Tensor

from icefall_attn.decoding.histories import Histories, start_predictor


class Contexts:
    """The predictor state of every active context of every stream.

    k2's search knows a hypothesis by its last H tokens only. A stateless predictor needs no
    more; an LSTM needs the whole history. The rule here, for both:

    - a context that was active in the previous frame keeps its state;
    - a new context takes the state of a context of the previous frame from which one token
      leads to it (same tokens but the oldest, then the new one), stepped with that token. Of
      several such contexts the one with the best path is taken, as the search itself does.

    So each context carries the exact state of the full history that first reached it, and
    the search is exact as long as no two active hypotheses share their last H tokens. Only
    active contexts are stored.

    A context whose last symbol is V, the end of a graph, says nothing more: it keeps the state
    that it had. Contexts are compared as numbers in base V + 1, which fit int64 because k2
    packs them so.

    Args:
      model: the transducer.
      streams: number of streams.
      history: H.
      device: of the model.
    """

    def __init__(self, model, streams: int, history: int, device) -> None:
        self._model = model
        self._streams = streams
        self._end = model.vocab_size
        self._base = model.vocab_size + 1
        powers = [self._base ** (history - 1 - i) for i in range(history)]
        self._powers = torch.tensor(powers, dtype=torch.int64, device=device)
        self._codes: Optional[Tensor] = None
        self._best = torch.empty(0)
        self._log_probs = torch.empty(0)
        #: (C,) stream of each active context.
        self.stream = torch.empty(0, dtype=torch.int64)
        #: projected output (C, J) and state of each active context.
        self.predictor: Histories = start_predictor(model, streams, device)

    def update(self, row_splits: Tensor, symbols: Tensor) -> None:
        """Takes over the contexts of a new frame.

        Args:
          row_splits: (S + 1,) where each stream's contexts begin.
          symbols: (C, H) int64, oldest token first.
        """
        device = symbols.device
        codes = (symbols * self._powers).sum(dim=1)
        counts = row_splits[1:] - row_splits[:-1]
        ids = torch.arange(self._streams, device=device)
        stream = torch.repeat_interleave(ids, counts)
        if self._codes is None:
            # The first frame: the empty context of each stream, where everything starts.
            self._best = torch.zeros(len(codes), dtype=torch.float64, device=device)
        else:
            self._follow(codes, stream, symbols[:, -1])
        self._codes, self.stream, self._row_splits = codes, stream, row_splits

    def score(self, log_probs: Tensor) -> None:
        """Notes what the frame's contexts may do next, (C, V + 1) log-probabilities."""
        self._log_probs = log_probs

    def _follow(self, codes: Tensor, stream: Tensor, last: Tensor) -> None:
        """Finds where each of the new frame's contexts (C,) comes from, and steps."""
        # (S, K) rows of the previous frame's contexts by stream; -1 where there is none.
        first = self._row_splits[:-1].unsqueeze(1)
        counts = self._row_splits[1:].unsqueeze(1) - first
        columns = torch.arange(int(counts.max()), device=codes.device)
        rows = torch.where(columns < counts, first + columns, -torch.ones_like(first))
        rows = rows[stream]  # (C, K): candidates for each new context
        real = rows >= 0
        rows = rows.clamp(min=0)

        blank = self._log_probs[:, self._model.blank_id].double()
        stay = self._best[rows] + blank[rows]
        same = real & (self._codes[rows] == codes.unsqueeze(1))
        stay = stay.masked_fill(~same, -torch.inf)

        oldest = int(self._powers[0])
        tail = self._codes % oldest  # without the oldest token
        leads = real & (
            tail[rows]
            == torch.div(codes, self._base, rounding_mode="floor").unsqueeze(1)
        )
        # A context of blanks only is the empty history; no token leads there.
        leads &= (last != self._model.blank_id).unsqueeze(1)
        move = self._best[rows] + self._log_probs[rows, last.unsqueeze(1)].double()
        move = move.masked_fill(~leads, -torch.inf)

        kept = same.any(dim=1)
        choice = torch.where(kept, same.int().argmax(dim=1), move.argmax(dim=1))
        self.predictor.select(rows.gather(1, choice.unsqueeze(1)).squeeze(1))
        new = (~kept & (last != self._end)).nonzero().squeeze(1)
        if new.numel() > 0:
            self.predictor.advance(new, last[new])
        self._best = torch.maximum(stay.max(dim=1).values, move.max(dim=1).values)

"""Which utterances of a batch can be trained on."""

import logging
from typing import List

import torch

from icefall_attn.data.batch import Batch
from icefall_attn.errors import UserError
from icefall_attn.nn.lengths import subsampled


def select(batch: Batch, keep: List[int]) -> Batch:
    """The utterances at positions ``keep``."""
    lengths = batch.feature_lengths[keep]
    longest = int(lengths.max()) if keep else 0
    return Batch(
        ids=[batch.ids[i] for i in keep],
        features=batch.features[keep, :longest],
        feature_lengths=lengths,
        texts=[batch.texts[i] for i in keep],
        tokens=[batch.tokens[i] for i in keep],
        durations=[batch.durations[i] for i in keep],
    )


class UtteranceFilter:
    """Leaves unusable utterances out, names them in the log once and counts them.

    Args:
      patience: utterances to look at before judging; if nearly all of as many were bad, the run
        is stopped, since nothing would be learned.
    """

    def __init__(self, patience: int = 1000):
        self.patience = patience
        self.seen = self.dropped = 0  # in the current window
        self.total_dropped = 0
        self.named: set = set()

    def __call__(self, batch: Batch) -> Batch:
        """The utterances with finite features, a label, and no more labels than encoder frames."""
        keep = []
        finite = torch.isfinite(batch.features).flatten(1).all(dim=1).tolist()
        for index, (frames, tokens) in enumerate(
            zip(batch.feature_lengths.tolist(), batch.tokens)
        ):
            if not finite[index]:
                self.drop(batch.ids[index], "its features are not finite")
            elif not tokens:
                self.drop(batch.ids[index], "its transcript is empty")
            elif len(tokens) > subsampled(frames):
                self.drop(
                    batch.ids[index],
                    f"{len(tokens)} labels do not fit in {subsampled(frames)} encoder frames",
                )
            else:
                keep.append(index)
        self._count(len(batch.ids))
        return batch if len(keep) == len(batch.ids) else select(batch, keep)

    def drop(self, utterance: str, reason: str) -> None:
        """Notes one utterance that is left out."""
        self.dropped += 1
        self.total_dropped += 1
        if utterance not in self.named:
            self.named.add(utterance)
            logging.warning("left out utterance %s: %s", utterance, reason)

    def _count(self, seen: int) -> None:
        self.seen += seen
        if self.seen < self.patience:
            return
        if self.dropped > 0.9 * self.seen:
            raise UserError(
                f"{self.dropped} of the last {self.seen} utterances could not be trained on; "
                "the log names them and why"
            )
        self.seen = self.dropped = 0

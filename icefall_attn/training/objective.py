"""The number that a step minimises."""

import logging
from typing import Callable, List, NamedTuple, Optional

import torch
from torch import Tensor, nn

from icefall_attn.data.batch import Batch
from icefall_attn.data.tokenizer import Tokenizer
from icefall_attn.rnnt.config import LossConfig
from icefall_attn.training.usable import select


class Terms(NamedTuple):
    """Sums over the utterances of a batch (scalar tensors) and encoder frames.

    In nats, but for ``distillation``, which is a squared distance.
    """

    total: Tensor
    simple: Tensor
    pruned: Tensor
    ctc: Optional[Tensor]
    distillation: Optional[Tensor]
    frames: int


def pad_labels(tokens: List[List[int]], device: torch.device) -> tuple:
    """Token lists to ``(B, U)`` int64, 0 beyond their lengths, and ``(B,)``."""
    lengths = torch.tensor([len(t) for t in tokens])
    labels = torch.zeros(len(tokens), int(lengths.max()), dtype=torch.int64)
    for row, ids in zip(labels, tokens):
        row[: len(ids)] = torch.tensor(ids, dtype=torch.int64)
    return labels.to(device), lengths.to(device)


class Objective:
    """Weighs the losses of a batch by the progress of the training.

    Args:
      model: the transducer.
      config: weights.
      lexicon: gives the labels of the inner CTC head, if they are not the tokens.
      drop: called as ``drop(id, reason)`` for an utterance whose loss is not finite; the rest of
        the batch is computed again without it.
    """

    def __init__(
        self,
        model: nn.Module,
        config: LossConfig,
        drop: Callable[[str, str], None],
        lexicon: Optional[Tokenizer] = None,
    ):
        self.model = model
        self.config = config
        self.drop = drop
        self.lexicon = lexicon

    def __call__(self, batch: Batch, step: int, progress: float) -> Optional[Terms]:
        """The terms of a batch (on the model's device), or None if no utterance is left.

        Args:
          batch: usable utterances.
          step: from 0.
          progress: share of the training that is done, 0 to 1.
        """
        if not batch.ids:
            return None
        device = batch.features.device
        inner = None
        if self.lexicon is not None:
            phones = [self.lexicon.encode(text) for text in batch.texts]
            inner = pad_labels(phones, device)
        losses, lengths = self.model(
            batch.features,
            batch.feature_lengths,
            *pad_labels(batch.tokens, device),
            self.config,
            inner,
        )
        simple, pruned, ctc, distillation = losses
        each = simple + pruned if ctc is None else simple + pruned + ctc
        finite = torch.isfinite(each)
        if not bool(finite.all()):
            return self(self._finite(batch, finite.tolist()), step, progress)
        total = self.config.simple_scale * simple.sum()
        pruned_scale = self.config.pruned_scale(step)
        if pruned_scale > 0:
            total = total + pruned_scale * pruned.sum()
        if ctc is not None:
            total = total + self.config.ctc_scale_at(progress) * ctc.sum()
        if distillation is not None:
            total = total + self.config.distillation_scale * distillation.sum()
        return Terms(
            total,
            simple.sum(),
            pruned.sum(),
            None if ctc is None else ctc.sum(),
            None if distillation is None else distillation.sum(),
            int(lengths.sum()),
        )

    def _finite(self, batch: Batch, finite: List[bool]) -> Batch:
        for utterance, good in zip(batch.ids, finite):
            if not good:
                self.drop(utterance, "its loss is not finite")
        logging.warning(
            "computing a batch again without %d utterances", finite.count(False)
        )
        return select(batch, [i for i, good in enumerate(finite) if good])

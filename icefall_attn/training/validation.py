"""Dev loss and dev error rate."""

import logging
import math
from typing import List, NamedTuple, Optional

import torch
from torch import nn

from icefall_attn.data.loader import eval_loader
from icefall_attn.data.tokenizer import Tokenizer
from icefall_attn.decoding import SearchConfig, recognize
from icefall_attn.scoring import score
from icefall_attn.training.objective import Objective
from icefall_attn.training.usable import UtteranceFilter


class Validation(NamedTuple):
    """Losses in nats per encoder frame; the model is chosen by ``loss``, the pruned one, which is
    infinite if that of any utterance is. ``wer`` counts what the tokenizer's texts are made of, words
    or characters."""

    loss: float
    simple: float
    ctc: Optional[float]
    wer: Optional[float]


@torch.no_grad()
def validate(
    model: nn.Module,
    tokenizer: Tokenizer,
    config,
    device: torch.device,
    lexicon: Optional[Tokenizer] = None,
) -> Validation:
    """Goes through the valid set once, without dropout, SpecAugment or random numbers."""
    usable = UtteranceFilter()
    infinite: List[str] = []
    objective = Objective(
        model, config.loss, lambda name, reason: infinite.append(name), lexicon
    )
    model.eval()
    sums = {"simple": 0.0, "pruned": 0.0, "ctc": 0.0}
    frames = 0
    refs, hyps = {}, {}
    for batch in eval_loader(config.data.valid_cuts, config.data, tokenizer):
        batch = batch.to(device)
        terms = objective(usable(batch), step=0, progress=1.0)
        if terms is not None:
            sums["simple"] += float(terms.simple)
            sums["pruned"] += float(terms.pruned)
            sums["ctc"] += 0.0 if terms.ctc is None else float(terms.ctc)
            frames += terms.frames
        if config.train.valid_wer:
            texts = transcribe(model, batch.features, batch.feature_lengths, tokenizer)
            refs.update(zip(batch.ids, batch.texts))
            hyps.update(zip(batch.ids, texts))
    model.train()
    if infinite:
        logging.warning("the loss of %d valid utterances is not finite", len(infinite))
    broken = bool(infinite) or frames == 0  # such a model must not look like a good one
    frames = max(frames, 1)
    return Validation(
        loss=math.inf if broken else sums["pruned"] / frames,
        simple=sums["simple"] / frames,
        ctc=sums["ctc"] / frames if config.model.ctc else None,
        wer=score(refs, hyps, tokenizer.unit).rate if config.train.valid_wer else None,
    )


def transcribe(
    model: nn.Module,
    features: torch.Tensor,
    lengths: torch.Tensor,
    tokenizer: Tokenizer,
) -> List[str]:
    """Greedy transcripts of ``(B, T, F)`` features."""
    results = recognize(model, features, lengths, SearchConfig())
    return [tokenizer.decode(nbest[0].tokens if nbest else []) for nbest in results]

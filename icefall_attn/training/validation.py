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
from icefall_attn.training.group import Group
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
    group: Group = Group(),
) -> Validation:
    """Goes through the valid set once, without dropout, SpecAugment or random numbers.

    Each process of a group takes a part of it, and all get the result of the whole.
    """
    usable = UtteranceFilter()
    infinite: List[str] = []
    objective = Objective(
        model, config.loss, lambda name, reason: infinite.append(name), lexicon
    )
    model.eval()
    sums = {"simple": 0.0, "pruned": 0.0, "ctc": 0.0}
    frames = 0
    refs, hyps = {}, {}
    data = config.data
    for batch in eval_loader(data.valid_cuts, data, tokenizer, share=group.share()):
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
    parts = group.gather((sums, frames, len(infinite), refs, hyps))
    frames = sum(part[1] for part in parts)
    broken = sum(part[2] for part in parts)
    refs = {name: text for part in parts for name, text in part[3].items()}
    hyps = {name: text for part in parts for name, text in part[4].items()}
    if broken:
        logging.warning("the loss of %d valid utterances is not finite", broken)

    def per_frame(name: str) -> float:
        return sum(part[0][name] for part in parts) / max(frames, 1)

    # a model with such a loss must not look like a good one
    return Validation(
        loss=math.inf if broken or frames == 0 else per_frame("pruned"),
        simple=per_frame("simple"),
        ctc=per_frame("ctc") if config.model.ctc else None,
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

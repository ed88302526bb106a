"""Whole sets of utterances recognised, by one search or several."""

import logging
from dataclasses import dataclass, field
from typing import Dict, List, Sequence

import torch

from icefall_attn.decoding.recognizer import Search, now, recognize_by
from icefall_attn.decoding.results import Hypothesis
from icefall_attn.decoding.streaming import recognize_streams
from icefall_attn.errors import UserError
from icefall_attn.progress import progress_bar


@dataclass
class Decoded:
    """What one search found in a set.

    Args:
      references: text by utterance id.
      hypotheses: n-best list by utterance id; an utterance that failed is not in it.
      audio: seconds of audio.
      seconds: time of encoder and search, without loading.
    """

    references: Dict[str, str]
    hypotheses: Dict[str, List[Hypothesis]] = field(default_factory=dict)
    audio: float = 0.0
    seconds: float = 0.0

    @property
    def rtf(self) -> float:
        """Real-time factor: seconds of computing per second of audio."""
        return self.seconds / self.audio if self.audio > 0 else 0.0


def decode_set(
    model,
    loader,
    searches: Sequence[Search],
    device: torch.device,
    name: str,
    piece: int = 0,
) -> List[Decoded]:
    """Decodes every batch of a loader, encoded once for all searches.

    Args:
      model: on ``device``, in evaluation mode.
      loader: an iterable of `Batch`.
      searches: how.
      device: of the model.
      name: of the set, for messages.
      piece: above 0, decode as streams, in so many frames of 10 ms, by a single search.

    Returns:
      What each search found.

    Raises:
      UserError: two utterances have one id.
    """
    searches = [Search(one.config, one.graph) for one in searches]
    references: Dict[str, str] = {}
    results = [Decoded(references) for _ in searches]
    length = len(loader) if hasattr(loader, "__len__") else None
    for batch in progress_bar(loader, desc=name, total=length):
        for id, text in zip(batch.ids, batch.texts):
            if id in references:
                raise UserError(f"utterance '{id}' is in set '{name}' twice")
            references[id] = text
        batch = batch.to(device)
        if piece > 0:
            (one,) = searches
            begin = now(device)
            found = [
                recognize_streams(
                    model, batch.features, batch.feature_lengths, one.config, piece
                )
            ]
            one.seconds += now(device) - begin
        else:
            found = recognize_by(searches, model, batch.features, batch.feature_lengths)
        for result, one, nbests in zip(results, searches, found):
            result.audio += sum(batch.durations)
            result.seconds = one.seconds
            for id, nbest in zip(batch.ids, nbests):
                if nbest is None:
                    logging.warning("%s: no hypothesis; its words count as deleted", id)
                else:
                    result.hypotheses[id] = nbest
    return results

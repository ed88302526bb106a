"""Utterances as a loader needs them: lhotse's cuts, chosen by duration, turned into batches."""

import itertools
import logging
from collections import Counter
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Sequence

import torch
from lhotse import CutSet
from lhotse.cut import Cut
from torch import Tensor

from icefall_attn.data.audio import use_libsndfile
from icefall_attn.data.batch import Batch
from icefall_attn.data.features import SAMPLE_RATE, compute_features, feature_dim
from icefall_attn.data.manifests import read_manifest
from icefall_attn.data.tokenizer import Tokenizer
from icefall_attn.errors import UserError


class Corpus:
    """The utterances of some files of cuts.

    Args:
      paths: files of cuts, with features unless ``on_the_fly``.
      shortest, longest: seconds; other utterances are left out, their number is logged.
      on_the_fly: compute the features from audio.
      in_memory: keep the cuts, and each utterance's features once they have been loaded. Without
        it the files are read anew on each pass, however large they are.
      features: their kind, see `icefall_attn.data.features`.
    """

    def __init__(
        self,
        paths: Sequence[str],
        shortest: float = 0.0,
        longest: float = float("inf"),
        on_the_fly: bool = False,
        in_memory: bool = False,
        features: str = "fbank",
    ):
        if not paths:
            raise UserError("no file of cuts is given")
        self.paths = list(paths)
        self.shortest, self.longest = shortest, longest
        self.on_the_fly = on_the_fly
        self.features, self.feature_dim = features, feature_dim(features)
        self._told = False
        self._cuts = list(self._read()) if in_memory else None
        self._features: Optional[Dict[str, Tensor]] = {} if in_memory else None
        # A user wants to hear of missing data now, not from a worker process.
        first = next(iter(self), None)
        if first is None:
            raise UserError(
                f"{', '.join(self.paths)}: no utterance of {shortest} to {longest} s"
            )
        self.check(first)
        if self._cuts is not None:
            twice = [i for i, n in Counter(c.id for c in self._cuts).items() if n > 1]
            if twice:
                raise UserError(
                    f"{', '.join(self.paths)}: the utterance {twice[0]!r} is there twice"
                )

    def __iter__(self) -> Iterator[Cut]:
        return iter(self._read() if self._cuts is None else self._cuts)

    def batch(self, cuts: Sequence[Cut], tokenizer: Tokenizer) -> Batch:
        """Loads utterances and pads them with zeros to the longest."""
        features = [self.load(cut) for cut in cuts]
        lengths = [len(f) for f in features]
        padded = torch.zeros(len(cuts), max(lengths), self.feature_dim)
        for row, utterance in zip(padded, features):
            row[: len(utterance)] = utterance
        texts = [cut.supervisions[0].text or "" for cut in cuts]
        return Batch(
            ids=[cut.id for cut in cuts],
            features=padded,
            feature_lengths=torch.tensor(lengths, dtype=torch.int64),
            texts=texts,
            tokens=[tokenizer.encode(text) for text in texts],
            durations=[cut.duration for cut in cuts],
        )

    def check(self, cut: Cut) -> None:
        """Raises `UserError` if an utterance cannot be used."""
        where = f"{', '.join(self.paths)}: the utterance {cut.id!r}"
        if len(cut.supervisions) != 1:
            raise UserError(f"{where} has {len(cut.supervisions)} transcripts, not one")
        if self.on_the_fly:
            if not cut.has_recording:
                raise UserError(f"{where} has no audio; set on_the_fly to false")
            if cut.sampling_rate != SAMPLE_RATE:
                raise UserError(
                    f"{where} is sampled at {cut.sampling_rate} Hz, not {SAMPLE_RATE} Hz"
                )
        elif not cut.has_features:
            raise UserError(
                f"{where} has no features; prepare them or set on_the_fly to true"
            )
        elif cut.num_features != self.feature_dim:
            raise UserError(
                f"{where} has features of {cut.num_features} dimensions, not the"
                f" {self.feature_dim} of data.features={self.features}"
            )

    def _read(self) -> Iterator[Cut]:
        sets = [read_manifest(path, lazy=True) for path in self.paths]
        if len(sets) > 1:
            # Files follow each other in proportion to their size, not one after the other: a
            # sampler sees only so far ahead.
            sizes = [Path(path).stat().st_size for path in self.paths]
            sets = [CutSet.mux(*sets, weights=sizes, seed=0)]
        kept, left_out = 0, 0
        try:
            for cut in sets[0]:
                if self.shortest <= cut.duration <= self.longest:
                    kept += 1
                    yield cut
                else:
                    left_out += 1
        except Exception as error:  # gzip, JSON and lhotse have a dozen ways to fail
            raise UserError(
                f"{', '.join(self.paths)}: damaged after {kept + left_out} utterances: {error!r}"
            )
        if left_out and not self._told:
            self._told = True
            logging.info(
                "%s: left out %d of %d utterances, shorter than %g s or longer than %g s",
                ", ".join(self.paths),
                left_out,
                kept + left_out,
                self.shortest,
                self.longest,
            )

    def load(self, cut: Cut) -> Tensor:
        """(T, F) features of one utterance; raises `UserError` if they cannot be had."""
        if self._features is None:
            return self._compute(cut)
        if cut.id not in self._features:
            self._features[cut.id] = self._compute(cut)
        return self._features[cut.id]

    def _compute(self, cut: Cut) -> Tensor:
        self.check(cut)
        try:
            if not self.on_the_fly:
                return torch.from_numpy(cut.load_features())
            use_libsndfile()
            return compute_features(
                torch.from_numpy(cut.load_audio()[0]), self.features
            )
        except Exception as error:  # of lhotse, libsndfile, lilcom, numpy or the system
            what = "audio" if self.on_the_fly else "features"
            reason = (str(error) or repr(error)).splitlines()[0]
            raise UserError(
                f"{', '.join(self.paths)}: cannot load the {what} of {cut.id!r}: {reason}"
            )


def group_by_duration(cuts: Sequence[Cut], max_duration: float) -> List[List[Cut]]:
    """Splits cuts, in their order, into batches of at most ``max_duration`` seconds padded.

    An utterance that is longer by itself makes a batch of its own.
    """
    batches: List[List[Cut]] = []
    longest = 0.0
    for cut in cuts:
        longest = max(longest, cut.duration)
        if batches and longest * (len(batches[-1]) + 1) <= max_duration:
            batches[-1].append(cut)
        else:
            batches.append([cut])
            longest = cut.duration
    return batches


def first_durations(corpus: Corpus, limit: int = 10_000) -> List[float]:
    """Durations in seconds of the first utterances, sorted."""
    return sorted(cut.duration for cut in itertools.islice(corpus, limit))

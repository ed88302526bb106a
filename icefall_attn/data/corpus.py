"""Utterances as a loader needs them: lhotse's cuts, chosen by duration, turned into batches."""

import logging
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Sequence

import numpy as np
import torch
from lhotse.cut import Cut
from torch import Tensor

from icefall_attn.data.acoustics import Distortion
from icefall_attn.data.audio import use_libsndfile
from icefall_attn.data.batch import Batch
from icefall_attn.data.features import (
    FEATURE_DIMS,
    SAMPLE_RATE,
    compute_features,
    feature_dim,
)
from icefall_attn.data.index import IndexedCuts, Joined
from icefall_attn.data.manifests import read_manifest
from icefall_attn.data.shar import SharCuts
from icefall_attn.data.tokenizer import Tokenizer
from icefall_attn.errors import UserError


class Corpus:
    """The utterances of some files of cuts, numbered from 0.

    Args:
      paths: files of cuts, with features unless ``on_the_fly``, or all of them Shar directories.
      shortest, longest: seconds; other utterances are left out, their number is logged.
      on_the_fly: compute the features from audio.
      in_memory: keep the cuts, and each utterance's features once they have been loaded. Without
        it memory holds some 60 bytes an utterance, however long their texts are.
      features: their kind, see `icefall_attn.data.features`.

    Attributes:
      durations: (N,) seconds.
      shards: (N,) the number of each utterance's shard, rising, or None without Shar.
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
        self.where = ", ".join(paths)
        self.on_the_fly = on_the_fly
        self.features, self.feature_dim = features, feature_dim(features)
        shar = [Path(path).is_dir() for path in paths]
        if any(shar) and not all(shar):
            raise UserError(f"{self.where}: give files of cuts or Shar directories")
        field = "recording" if on_the_fly else "features"
        parts = [SharCuts(p, field) if shar[0] else IndexedCuts(p) for p in paths]
        self._source = Joined(parts)
        durations = self._source.durations
        self._kept = np.flatnonzero((shortest <= durations) & (durations <= longest))
        self.durations = durations[self._kept]
        self.shards = shards_of(parts)[self._kept] if shar[0] else None
        self._cuts: Optional[List[Cut]] = None
        self._features: Optional[Dict[str, Tensor]] = None
        self._check_all(shortest, longest)
        if in_memory:
            self.check_names()  # by which features are kept
            self._cuts, self._features = list(self), {}

    def __len__(self) -> int:
        return len(self.durations)

    def __iter__(self) -> Iterator[Cut]:
        for begin in range(0, len(self), 1000):
            yield from self.read(range(begin, min(begin + 1000, len(self))))

    def read(self, numbers: Sequence[int]) -> List[Cut]:
        """The cuts of these utterances."""
        if self._cuts is not None:
            return [self._cuts[number] for number in numbers]
        return self._source.read(self._kept[numbers])

    def batch(
        self,
        numbers: Sequence[int],
        tokenizer: Tokenizer,
        distortion: Optional[Distortion] = None,
    ) -> Batch:
        """Loads utterances and pads them with zeros to the longest; without any it is empty."""
        if len(numbers) == 0:
            return Batch.empty(self.feature_dim)
        cuts = self.read(numbers)
        features = [self.load(cut, distortion) for cut in cuts]
        texts = [cut.supervisions[0].text or "" for cut in cuts]
        return Batch(
            ids=[cut.id for cut in cuts],
            features=torch.nn.utils.rnn.pad_sequence(features, batch_first=True),
            feature_lengths=torch.tensor([len(f) for f in features]),
            texts=texts,
            tokens=[tokenizer.encode(text) for text in texts],
            durations=[cut.duration for cut in cuts],
        )

    def check(self, cut: Cut) -> None:
        """Raises `UserError` if an utterance cannot be used."""
        where = f"{self.where}: the utterance {cut.id!r}"
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

    def check_names(self) -> None:
        """Raises `UserError` if two utterances have the same name."""
        number = self._source.twice()
        if number is not None:
            (cut,) = self._source.read([number])
            raise UserError(f"{self.where}: the utterance {cut.id!r} is there twice")

    def load(self, cut: Cut, distortion: Optional[Distortion] = None) -> Tensor:
        """(T, F) features of one utterance; raises `UserError` if they cannot be had."""
        if distortion is not None and self.on_the_fly:
            return self._compute(cut, distortion)
        if self._features is None:
            features = self._compute(cut)
        elif cut.id in self._features:
            features = self._features[cut.id]
        else:
            features = self._features[cut.id] = self._compute(cut)
        return features if distortion is None else distortion(features, cut.id)

    def _compute(self, cut: Cut, distortion: Optional[Distortion] = None) -> Tensor:
        self.check(cut)
        try:
            if not self.on_the_fly:
                return torch.from_numpy(cut.load_features())
            use_libsndfile()
            samples = torch.from_numpy(cut.load_audio()[0])
        except Exception as error:  # of lhotse, libsndfile, lilcom, numpy or the system
            what = "audio" if self.on_the_fly else "features"
            reason = (str(error) or repr(error)).splitlines()[0]
            raise UserError(
                f"{self.where}: cannot load the {what} of {cut.id!r}: {reason}"
            )
        if distortion is not None:
            samples = distortion(samples, cut.id)
        return compute_features(samples, self.features)

    def _check_all(self, shortest: float, longest: float) -> None:
        if len(self) == 0:
            raise UserError(f"{self.where}: no utterance of {shortest} to {longest} s")
        if len(self) < len(self._source):
            logging.info(
                "%s: left out %d of %d utterances, shorter than %g s or longer than %g s",
                self.where,
                len(self._source) - len(self),
                len(self._source),
                shortest,
                longest,
            )
        if self.shards is None:
            # A user wants to hear of missing data now, not from a worker process.
            self.check(*self.read([0]))


def open_corpus(path: str) -> Corpus:
    """One file of cuts as a training would read it whose config fits its first cut."""
    cut = next(iter(read_manifest(path, lazy=True)), None)
    stored = cut is not None and cut.has_features
    dims = {dim: kind for kind, dim in FEATURE_DIMS.items()}
    kind = dims.get(cut.num_features, "fbank") if stored else "fbank"
    return Corpus([path], on_the_fly=not stored, features=kind)


def shards_of(directories: Sequence[SharCuts]) -> np.ndarray:
    """(N,) the shard of each utterance, numbered through the directories."""
    found, before = [], 0
    for directory in directories:
        found.append(before + directory.shards)
        before += directory.num_shards
    return np.concatenate(found)

"""Batches of a corpus, for training and for evaluation.

An epoch's batches are planned before it begins. The configuration, the epoch and the seed fix them,
their order and what noise they get, however many processes load them.
"""

import math
import re
import signal
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Iterator, List, Literal, Optional, Sequence, Tuple, Union

import numpy as np
import torch
from torch.utils.data import DataLoader

from icefall_attn.data.acoustics import Distortion, Noise, Rooms
from icefall_attn.data.batch import Batch
from icefall_attn.data.corpus import Corpus
from icefall_attn.data.sampling import (
    Plan,
    Share,
    by_rising_duration,
    in_order,
    shuffled,
    shuffled_shards,
)
from icefall_attn.data.shar import STREAMS
from icefall_attn.data.tokenizer import Tokenizer
from icefall_attn.errors import UserError

__all__ = [
    "AUTO",
    "DataConfig",
    "corpus_of",
    "TrainLoader",
    "EvalLoader",
    "train_loader",
    "eval_loader",
]


AUTO = "auto"


@dataclass
class DataConfig:
    """What is trained on, and how it is cut into batches.

    Attributes:
      train_cuts: files of cuts to train on, or Shar directories.
      valid_cuts: files of cuts to choose the model by, or Shar directories.
      lang_dir: directory of the tokens.
      lexicon_dir: directory of phones for the CTC head at ``model.inter_ctc_layer``; without one
        it is trained on the tokens.
      max_duration: seconds of audio in a batch, padding included; ``auto`` takes as many as fit the memory
        when a training begins, which its later parts keep to.
      num_buckets: groups of similar duration that a batch is drawn from.
      num_workers: processes that load data; 0 loads in the training process.
      min_utterance: seconds; shorter utterances are left out of training.
      max_utterance: seconds; longer utterances are left out of training.
      features: their kind: fbank (80 dimensions) or fbank_pitch (83).
      on_the_fly: compute features from audio instead of reading stored ones.
      cache: keep the features in memory (small corpora; needs num_workers=0).
      sort_first_epoch: go through epoch 1 by rising duration.
      noise_cuts: files of cuts of noise to mix with training utterances; see
        local/prepare_noise.py.
      noise_snr: lowest and highest signal-to-noise ratio in dB.
      noise_probability: share of the utterances that get noise.
      rir_cuts: files of cuts of room impulse responses to convolve training utterances with; needs
        on_the_fly=true.
      rir_probability: share of the utterances that get reverberation.
    """

    train_cuts: List[str] = field(default_factory=list)
    valid_cuts: List[str] = field(default_factory=list)
    lang_dir: str = "data/lang"
    lexicon_dir: str = ""
    max_duration: Union[float, Literal["auto"]] = 200.0
    num_buckets: int = 30
    num_workers: int = 2
    min_utterance: float = 0.1
    max_utterance: float = 30.0
    features: str = "fbank"
    on_the_fly: bool = False
    cache: bool = False
    sort_first_epoch: bool = False
    noise_cuts: List[str] = field(default_factory=list)
    noise_snr: List[float] = field(default_factory=lambda: [10.0, 20.0])
    noise_probability: float = 0.5
    rir_cuts: List[str] = field(default_factory=list)
    rir_probability: float = 0.5


def train_loader(
    cfg: DataConfig,
    tokenizer: Tokenizer,
    epoch: int,
    seed: int,
    share: Share = Share(),
) -> "TrainLoader":
    """The batches of one epoch.

    Args:
      cfg: see `DataConfig`.
      tokenizer: gives the token ids of the texts.
      epoch: counted from 1.
      seed: of the order; the same (cfg, epoch, seed) gives the same batches.
      share: of several processes, and what of the epoch is done, which is left out without
        loading it. All processes have as many batches, some perhaps without utterances.

    Raises:
      UserError: on options that do not fit, or data that is missing.
    """
    return TrainLoader(cfg, tokenizer, epoch, seed, share)


def eval_loader(
    cuts: Union[str, Sequence[str]],
    cfg: DataConfig,
    tokenizer: Tokenizer,
    max_duration: Optional[float] = None,
    share: Share = Share(),
) -> "EvalLoader":
    """Every utterance of some files of cuts once, the longest first, as it is.

    Args:
      cuts: one or more files of cuts or Shar directories (these shard by shard); none of their
        utterances is left out.
      cfg: says how to load; `min_utterance` and `max_utterance` do not apply.
      tokenizer: gives the token ids of the texts.
      max_duration: seconds of audio in a batch, instead of ``cfg.max_duration``.
      share: one process's batches of several processes'.
    """
    paths = [cuts] if isinstance(cuts, str) else list(cuts)
    if max_duration is None:
        max_duration = cfg.max_duration
    return EvalLoader(paths, cfg, tokenizer, max_duration, share)


class TrainLoader:
    """Iterates over the batches of an epoch; a second pass gives the same again.

    ``len()`` is the number of batches.
    """

    def __init__(
        self,
        cfg: DataConfig,
        tokenizer: Tokenizer,
        epoch: int,
        seed: int,
        share: Share = Share(),
    ):
        _check(cfg, cfg.max_duration)
        self.corpus = corpus_of(cfg)
        distortion = _distortion(cfg, seed, epoch)
        self._dataset = _Dataset(self.corpus, tokenizer, distortion)
        self._num_workers = cfg.num_workers
        self._plan = _train_plan(cfg, self.corpus, epoch, seed, share)

    def __len__(self) -> int:
        return len(self._plan.bounds)

    def __iter__(self) -> Iterator[Batch]:
        return _load(self._plan, self._dataset, self._num_workers)

    def heaviest(self, count: int = 3) -> List[Batch]:
        """Some of these batches: ``count`` of most padded audio, and of most audio times length."""
        begins, ends = self._plan.bounds[:, 0], self._plan.bounds[:, 1]
        durations = self.corpus.durations[self._plan.order]
        longest = np.array(
            [durations[b:e].max(initial=0.0) for b, e in zip(begins, ends)]
        )
        padded = longest * (ends - begins)
        chosen = [np.argsort(-work)[:count] for work in (padded, padded * longest)]
        plan = self._plan.take(np.unique(np.concatenate(chosen)))
        return list(_load(plan, self._dataset, 0))


class EvalLoader:
    """Iterates over every utterance once; ``len()`` is the number of batches."""

    def __init__(
        self,
        paths: Sequence[str],
        cfg: DataConfig,
        tokenizer: Tokenizer,
        max_duration: float,
        share: Share = Share(),
    ):
        _check(cfg, max_duration)
        corpus = _corpus(cfg, tuple(paths), 0.0, math.inf)
        corpus.check_names()
        self._dataset = _Dataset(corpus, tokenizer)
        self._num_workers = cfg.num_workers
        shards = 0 * corpus.durations if corpus.shards is None else corpus.shards
        order = np.lexsort((-corpus.durations, shards))
        plan = in_order(corpus.durations, order, max_duration)
        self._plan = plan.take(np.s_[share.rank :: share.size])

    def __len__(self) -> int:
        return len(self._plan.bounds)

    def __iter__(self) -> Iterator[Batch]:
        return _load(self._plan, self._dataset, self._num_workers)


def corpus_of(cfg: DataConfig) -> Corpus:
    """What is trained on."""
    return _corpus(cfg, tuple(cfg.train_cuts), cfg.min_utterance, cfg.max_utterance)


def _train_plan(
    cfg: DataConfig, corpus: Corpus, epoch: int, seed: int, share: Share
) -> Plan:
    """The batches of one process."""
    durations, shards = corpus.durations, corpus.shards
    if cfg.sort_first_epoch and epoch == 1:
        if shards is not None:
            raise UserError(
                "sort_first_epoch=true needs files of cuts: Shar is read shard by shard"
            )
        return by_rising_duration(durations, cfg.max_duration, share)
    # A seed may be negative, an entropy may not.
    rng = np.random.default_rng([seed & 0xFFFFFFFF, epoch])
    how = (cfg.max_duration, cfg.num_buckets, rng, share)
    if shards is None:
        return shuffled(durations, *how)
    if len(np.unique(shards)) < share.size:
        raise UserError(
            f"{corpus.where}: fewer shards than the {share.size} training processes; export with"
            " a smaller --shard-size"
        )
    return shuffled_shards(durations, shards, *how, streams=STREAMS)


def _distortion(cfg: DataConfig, seed: int, epoch: int) -> Optional[Distortion]:
    rooms = noise = None
    if cfg.rir_cuts:
        if not cfg.on_the_fly:
            raise UserError(
                "rir_cuts needs audio: set on_the_fly to true, or leave rir_cuts empty"
            )
        rooms = _rooms(tuple(cfg.rir_cuts), cfg.rir_probability)
    if cfg.noise_cuts:
        noise = _noise(
            tuple(cfg.noise_cuts),
            tuple(cfg.noise_snr),
            cfg.noise_probability,
            cfg.on_the_fly,
        )
    if rooms is None and noise is None:
        return None
    if cfg.cache and cfg.on_the_fly:
        raise UserError(
            "cache=true keeps the features of clean audio; set it to false with noise_cuts"
            " or rir_cuts on the fly"
        )
    return Distortion(rooms, noise, seed, epoch)


# One for all epochs.
_rooms = lru_cache(maxsize=1)(Rooms)
_noise = lru_cache(maxsize=1)(Noise)


def _check(cfg: DataConfig, max_duration: float) -> None:
    if cfg.cache and cfg.num_workers != 0:
        raise UserError(
            f"cache=true keeps features in the training process and cannot be used with"
            f" num_workers={cfg.num_workers}; set num_workers to 0"
        )
    if cfg.num_workers < 0:
        raise UserError(f"num_workers is {cfg.num_workers}; give 0 or more")
    if max_duration == AUTO:
        raise UserError("max_duration=auto is found by a training; give seconds here")
    if not max_duration > 0:
        raise UserError(f"max_duration is {max_duration}; give seconds above 0")
    if cfg.num_buckets < 1:
        raise UserError(f"num_buckets is {cfg.num_buckets}; give at least 1")


def _corpus(
    cfg: DataConfig, paths: Tuple[str, ...], shortest: float, longest: float
) -> Corpus:
    for path in paths:
        if not Path(path).exists():
            raise UserError(f"{path} is missing; prepare the data first")
    # A file that has been written anew is read anew.
    versions = tuple(Path(path).stat().st_mtime_ns for path in paths)
    return _shared_corpus(
        versions, paths, shortest, longest, cfg.on_the_fly, cfg.cache, cfg.features
    )


@lru_cache(maxsize=8)
def _shared_corpus(versions: Tuple[int, ...], *args) -> Corpus:
    # One for all epochs: it keeps what it has loaded, if it may.
    return Corpus(*args)


def _load(plan: Plan, dataset: "_Dataset", workers: int) -> Iterator[Batch]:
    if workers == 0:
        return map(dataset.__getitem__, plan.batches())
    return _load_in_workers(plan.batches(), dataset, workers)


def _load_in_workers(
    batches: Iterator[np.ndarray], dataset: "_Dataset", workers: int
) -> Iterator[Batch]:
    loader = DataLoader(
        dataset,
        sampler=batches,
        batch_size=None,
        num_workers=workers,
        collate_fn=_identity,
        worker_init_fn=_begin_worker,
        pin_memory=torch.cuda.is_available(),
        # A generator of its own: otherwise the loader would draw from torch's, and training with
        # workers would take other random numbers than training without.
        generator=torch.Generator().manual_seed(0),
    )
    try:
        yield from loader
        return
    except UserError as error:
        # Torch puts the worker's traceback around the message.
        message = str(error).strip().splitlines()[-1].split("UserError: ")[-1]
        # The traceback would keep the workers until they are collected, and then wait for them.
        error.__traceback__ = None
    raise UserError(message)


class _Dataset(torch.utils.data.Dataset):
    """Maps the numbers of utterances to their batch."""

    def __init__(
        self,
        corpus: Corpus,
        tokenizer: Tokenizer,
        distortion: Optional[Distortion] = None,
    ):
        self.corpus = corpus
        self.tokenizer = tokenizer
        self.distortion = distortion

    def __getitem__(self, numbers: np.ndarray) -> Batch:
        return self.corpus.batch(numbers, self.tokenizer, self.distortion)


def worker_death(error: RuntimeError) -> Optional[UserError]:
    """What a user is told if torch's error is that a loading process was killed; None if not.

    Torch raises it wherever the training process happens to be.
    """
    found = re.search(r"DataLoader worker .*? (?:is killed by|exited)[^.]*", str(error))
    if not found:
        return None
    return UserError(
        f"a process that loads data is gone ({found[0]}), perhaps for want of memory; run the same"
        " command again to go on, with a smaller data.num_workers if it comes again"
    )


def _identity(batch: Batch) -> Batch:
    return batch


def _begin_worker(worker: int) -> None:
    torch.set_num_threads(1)
    # What asks a whole group of processes to stop: the training process ends its workers itself.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)

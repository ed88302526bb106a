"""Batches of a corpus, for training and for evaluation.

Training batches are drawn by lhotse's dynamic bucketing; the configuration, the epoch and the seed
fix them and their order, however many processes load them. Nothing random happens in a worker.
"""

import itertools
import math
import random
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Iterator, List, Optional, Sequence, Tuple, Union

import torch
from lhotse.cut import Cut
from lhotse.dataset.sampling.dynamic_bucketing import DynamicBucketer
from torch.utils.data import DataLoader

from icefall_attn.data.batch import Batch
from icefall_attn.data.corpus import Corpus, first_durations, group_by_duration
from icefall_attn.data.tokenizer import Tokenizer
from icefall_attn.errors import UserError

__all__ = ["DataConfig", "TrainLoader", "EvalLoader", "train_loader", "eval_loader"]


@dataclass
class DataConfig:
    """What is trained on, and how it is cut into batches.

    Attributes:
      train_cuts: files of cuts to train on.
      valid_cuts: files of cuts to choose the model by.
      lang_dir: directory of the tokens.
      lexicon_dir: directory of phones for the CTC head at ``model.inter_ctc_layer``; without one
        it is trained on the tokens.
      max_duration: seconds of audio in a batch, padding included.
      num_buckets: groups of similar duration that a batch is drawn from.
      num_workers: processes that load data; 0 loads in the training process.
      min_utterance: seconds; shorter utterances are left out of training.
      max_utterance: seconds; longer utterances are left out of training.
      features: their kind: fbank (80 dimensions) or fbank_pitch (83).
      on_the_fly: compute features from audio instead of reading stored ones.
      cache: keep the features in memory (small corpora; needs num_workers=0).
      sort_first_epoch: go through epoch 1 by rising duration.
    """

    train_cuts: List[str] = field(default_factory=list)
    valid_cuts: List[str] = field(default_factory=list)
    lang_dir: str = "data/lang"
    lexicon_dir: str = ""
    max_duration: float = 200.0
    num_buckets: int = 30
    num_workers: int = 2
    min_utterance: float = 0.1
    max_utterance: float = 30.0
    features: str = "fbank"
    on_the_fly: bool = False
    cache: bool = False
    sort_first_epoch: bool = False


def train_loader(
    cfg: DataConfig, tokenizer: Tokenizer, epoch: int, seed: int, skip_batches: int = 0
) -> "TrainLoader":
    """The batches of one epoch.

    Args:
      cfg: see `DataConfig`.
      tokenizer: gives the token ids of the texts.
      epoch: counted from 1.
      seed: of the order; the same (cfg, epoch, seed) gives the same batches.
      skip_batches: leave out the first n batches without loading their features.

    Raises:
      UserError: on options that do not fit, or data that is missing.
    """
    return TrainLoader(cfg, tokenizer, epoch, seed, skip_batches)


def eval_loader(
    cuts: Union[str, Sequence[str]],
    cfg: DataConfig,
    tokenizer: Tokenizer,
    max_duration: Optional[float] = None,
) -> "EvalLoader":
    """Every utterance of some files of cuts once, the longest first.

    Args:
      cuts: one or more files of cuts; none of their utterances is left out.
      cfg: says how to load; `min_utterance` and `max_utterance` do not apply.
      tokenizer: gives the token ids of the texts.
      max_duration: seconds of audio in a batch, instead of ``cfg.max_duration``.
    """
    paths = [cuts] if isinstance(cuts, str) else list(cuts)
    if max_duration is None:
        max_duration = cfg.max_duration
    return EvalLoader(paths, cfg, tokenizer, max_duration)


class TrainLoader:
    """Iterates over the batches of an epoch; a second pass gives the same again."""

    def __init__(
        self,
        cfg: DataConfig,
        tokenizer: Tokenizer,
        epoch: int,
        seed: int,
        skip_batches: int = 0,
    ):
        _check(cfg, cfg.max_duration)
        self.cfg = cfg
        self.tokenizer = tokenizer
        self.epoch = epoch
        self.seed = seed
        self.skip_batches = skip_batches
        self.corpus = _corpus(
            cfg, tuple(cfg.train_cuts), cfg.min_utterance, cfg.max_utterance
        )

    def __iter__(self) -> Iterator[Batch]:
        batches = itertools.islice(self._cuts(), self.skip_batches, None)
        return _load(batches, self.corpus, self.tokenizer, self.cfg.num_workers)

    def _cuts(self) -> Iterator[List[Cut]]:
        """The cuts of each batch of this process."""
        world, rank = _world()
        if self.cfg.sort_first_epoch and self.epoch == 1:
            cuts = sorted(self.corpus, key=lambda cut: (cut.duration, cut.id))
            batches = iter(group_by_duration(cuts, self.cfg.max_duration))
        else:
            batches = self._draw(world)
        # Processes take turns; at the end all of them must have taken as many.
        while turn := list(itertools.islice(batches, world)):
            yield turn[rank % len(turn)]

    def _draw(self, world: int) -> Iterator[List[Cut]]:
        # The machine inside lhotse's DynamicBucketingSampler, without that class itself: as a
        # torch Sampler it cannot be constructed with torch 1.13.
        rng = random.Random(f"{self.seed} {self.epoch}")
        bucketer = DynamicBucketer(
            ((cut,) for cut in self.corpus),
            duration_bins=_duration_bins(self.corpus, self.cfg.num_buckets),
            world_size=world,
            max_duration=self.cfg.max_duration,
            buffer_size=20_000,
            shuffle=True,
            rng=rng,
            # All processes of a turn get a batch of about the same duration. (Without this
            # generator lhotse 1.33 ends an epoch early: it takes empty buckets for full ones.)
            bucket_rng=random.Random(rng.random()),
        )
        return (list(cuts) for cuts in bucketer)


class EvalLoader:
    """Iterates over every utterance once; ``len()`` is the number of batches."""

    def __init__(
        self,
        paths: Sequence[str],
        cfg: DataConfig,
        tokenizer: Tokenizer,
        max_duration: float,
    ):
        _check(cfg, max_duration)
        self.tokenizer = tokenizer
        self.num_workers = cfg.num_workers
        self.corpus = _corpus(cfg, tuple(paths), 0.0, math.inf)
        cuts = sorted(self.corpus, key=lambda cut: (-cut.duration, cut.id))
        self._batches = group_by_duration(cuts, max_duration)

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Batch]:
        return _load(iter(self._batches), self.corpus, self.tokenizer, self.num_workers)


def _check(cfg: DataConfig, max_duration: float) -> None:
    if cfg.cache and cfg.num_workers != 0:
        raise UserError(
            f"cache=true keeps features in the training process and cannot be used with"
            f" num_workers={cfg.num_workers}; set num_workers to 0"
        )
    if cfg.num_workers < 0:
        raise UserError(f"num_workers is {cfg.num_workers}; give 0 or more")
    if not max_duration > 0:
        raise UserError(f"max_duration is {max_duration}; give seconds above 0")
    if cfg.num_buckets < 1:
        raise UserError(f"num_buckets is {cfg.num_buckets}; give at least 1")


def _corpus(
    cfg: DataConfig, paths: Tuple[str, ...], shortest: float, longest: float
) -> Corpus:
    for path in paths:
        if not Path(path).is_file():
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


@lru_cache(maxsize=8)
def _duration_bins(corpus: Corpus, num_buckets: int) -> List[float]:
    """Durations where a bucket ends and the next begins; all hold about as much audio."""
    durations = first_durations(corpus)
    bins, total = [], 0.0
    for duration in durations:
        if total > sum(durations) / num_buckets and duration not in bins:
            bins.append(duration)
            total = 0.0
        total += duration
    # The sampler wants at least one.
    return bins or [durations[-1]]


def _load(
    batches: Iterator[List[Cut]], corpus: Corpus, tokenizer: Tokenizer, workers: int
) -> Iterator[Batch]:
    dataset = _Dataset(corpus, tokenizer)
    if workers == 0:
        return map(dataset.__getitem__, batches)
    return _load_in_workers(batches, dataset, workers)


def _load_in_workers(
    batches: Iterator[List[Cut]], dataset: "_Dataset", workers: int
) -> Iterator[Batch]:
    loader = DataLoader(
        dataset,
        sampler=batches,
        batch_size=None,
        num_workers=workers,
        collate_fn=_identity,
        worker_init_fn=_one_thread,
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
    """Maps a list of cuts to their batch."""

    def __init__(self, corpus: Corpus, tokenizer: Tokenizer):
        self.corpus = corpus
        self.tokenizer = tokenizer

    def __getitem__(self, cuts: List[Cut]) -> Batch:
        return self.corpus.batch(cuts, self.tokenizer)


def _identity(batch: Batch) -> Batch:
    return batch


def _one_thread(worker: int) -> None:
    torch.set_num_threads(1)


def _world() -> Tuple[int, int]:
    """Number of training processes and the index of this one."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_world_size(), torch.distributed.get_rank()
    return 1, 0

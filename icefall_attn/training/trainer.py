"""The training loop."""

import itertools
import logging
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Callable, Iterable, Iterator, List

from torch import nn

from icefall_attn.config import RunConfig, to_dict
from icefall_attn.data.batch import Batch
from icefall_attn.data.lexicon import load_lexicon
from icefall_attn.data.loader import eval_loader, train_loader
from icefall_attn.data.tokenizer import Tokenizer
from icefall_attn.device import choose_device, peak_memory_gib
from icefall_attn.errors import UserError
from icefall_attn.files import remove_leftovers
from icefall_attn.nn.dropout import begin_step
from icefall_attn.rnnt.lattice import choose_backend
from icefall_attn.training import checkpoint as ckpt
from icefall_attn.training.allocator import keep_freed_memory
from icefall_attn.training.augment import SpecAugment
from icefall_attn.training.metrics import Metrics
from icefall_attn.training.monitor import Monitor
from icefall_attn.training.objective import Objective
from icefall_attn.training.pictures import draw
from icefall_attn.training.random_state import (
    get_random_state,
    seed_everything,
    set_random_state,
)
from icefall_attn.training.same_run import check_same_run, fingerprint
from icefall_attn.training.schedule import FlatOptimizer
from icefall_attn.training.usable import UtteranceFilter
from icefall_attn.training.validation import validate
from icefall_attn.transducer.model import Transducer


@dataclass
class Progress:
    """Where a run is: all that is needed, with weights and random states, to go on exactly.

    Attributes:
      epoch: the current epoch, from 1.
      batches: batches of the epoch that are done.
      step: optimiser steps done.
      seconds: time spent training, validation included.
      cpu_seconds: processor time of that: what other jobs on the machine do not lengthen.
      best_valid_loss: the lowest so far.
      dropped: utterances left out.
      skipped_steps: steps left out because the gradient was not finite.
      memory_gib: peak memory, of the process or of the GPU.
    """

    epoch: int = 1
    batches: int = 0
    step: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    best_valid_loss: float = float("inf")
    dropped: int = 0
    skipped_steps: int = 0
    memory_gib: float = 0.0

    def clock(self) -> Callable[[], None]:
        """Goes on counting time; each call of what is returned brings it up to date."""
        wall = time.monotonic() - self.seconds
        cpu = time.process_time() - self.cpu_seconds

        def read() -> None:
            self.seconds = time.monotonic() - wall
            self.cpu_seconds = time.process_time() - cpu

        return read


class Trainer:
    """Trains a transducer as a `RunConfig` says, and goes on where an earlier run stopped."""

    MAX_SKIPPED = 20  # steps in a row

    def __init__(self, config: RunConfig, tokenizer: Tokenizer):
        self.config = config
        self.options = config.train
        self.tokenizer = tokenizer
        self.exp_dir = Path(config.exp_dir)
        self.device = choose_device(config.train.device)
        if self.device.type == "cpu":
            keep_freed_memory()
        seed_everything(config.train.seed)
        self.model = Transducer(config.model).to(self.device)
        if config.spec_augment.enabled:
            self.model.spec_augment = SpecAugment(config.spec_augment)
        self.optimizer = FlatOptimizer(self.model, config.optim)
        self.usable = UtteranceFilter()
        lexicon_dir = config.data.lexicon_dir
        self.lexicon = load_lexicon(lexicon_dir) if lexicon_dir else None
        self.objective = Objective(
            self.model, config.loss, self.usable.drop, self.lexicon
        )
        self.progress = Progress()
        self.metrics = Metrics()
        self.skipped_in_a_row = 0
        self.fingerprint = fingerprint(config, tokenizer, self.lexicon)
        remove_leftovers(self.exp_dir)
        logging.info("%s", _sizes(self.model))
        backend = choose_backend(config.loss.backend, self.device.type)
        logging.info("the loss sums over alignments with %s", backend)

    def resume(self) -> None:
        """Takes up an earlier run of the experiment directory where it stopped, if there is one.

        Raises:
          UserError: if that run was another one: other options, tokens or data.
        """
        path = self.exp_dir / ckpt.LAST
        if not path.is_file():
            if self.options.init_from:
                self._start_from(self.options.init_from, self.options.init_avg)
            return
        saved = ckpt.load_checkpoint(path)
        check_same_run(path, saved, self.config, self.fingerprint)
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.progress = Progress(**saved["progress"])
        self.usable.total_dropped = self.progress.dropped
        set_random_state(saved["random"])
        logging.info(
            "resuming from %s: epoch %d, %d of its batches done, step %d",
            path,
            self.progress.epoch,
            self.progress.batches,
            self.progress.step,
        )
        if self._finished():
            logging.info(
                "nothing is left to train; train.num_epochs or a new exp_dir adds more"
            )

    def _start_from(self, exp_dir: str, avg: int) -> None:
        """Takes the weights of another experiment, not its optimiser or progress."""
        other = ckpt.load_experiment(exp_dir, avg)
        if other.tokenizer.tokens != self.tokenizer.tokens:
            raise UserError(f"train.init_from={exp_dir} has other tokens than this run")
        try:
            self.model.load_state_dict(other.model.state_dict())
        except RuntimeError as error:
            reason = " ".join(str(error).split())[:300]
            raise UserError(
                f"the model of train.init_from={exp_dir} does not fit: {reason}"
            ) from None
        logging.info("starting from the weights of %s, %s", exp_dir, other.name)

    def run(self) -> None:
        """Trains until the last epoch or step."""
        self.monitor = Monitor(self.exp_dir, self.options, self.progress.step)
        read_clock = self.progress.clock()
        try:
            while not self._finished():
                self._train_epoch(read_clock)
                self._end_epoch(read_clock)
        finally:
            self.monitor.close()
        logging.info(
            "done: %d steps in %.0f s", self.progress.step, self.progress.seconds
        )

    def _finished(self) -> bool:
        at_end = 0 < self.options.max_steps <= self.progress.step
        return at_end or self.progress.epoch > self.options.num_epochs

    def _train_epoch(self, read_clock: Callable[[], None]) -> None:
        """The rest of the current epoch, or as much of it as ``max_steps`` leaves."""
        self.model.train()
        progress = self.progress
        loader = train_loader(
            self.config.data,
            self.tokenizer,
            progress.epoch,
            self.options.seed,
            skip_batches=progress.batches,
        )
        begin = time.monotonic()
        for group in _groups(loader, self.options.accumulate):
            waited = time.monotonic() - begin
            self._step(group)
            progress.batches += len(group)
            read_clock()
            self.metrics.count(waited=waited, seconds=time.monotonic() - begin, steps=1)
            if progress.step % self.options.log_every == 0:
                self.monitor.train(self.metrics, progress, self._rate(), self.model)
            if 0 < self.options.max_steps <= progress.step:
                break
            if progress.step % self.options.save_every == 0:
                path = self.exp_dir / f"checkpoint-{progress.step}.pt"
                self._save(path)
                ckpt.link(path, self.exp_dir / ckpt.LAST)
                ckpt.prune(
                    self.exp_dir, self.options.keep_last, self.options.keep_epochs
                )
            begin = time.monotonic()
        progress.batches = 0

    def _step(self, batches: List[Batch]) -> None:
        """One update from one or more batches, normalised by their encoder frames."""
        progress = self.progress
        begin_step(self.model, progress.step >= self.options.regularise_after)
        share = (
            progress.step / self.options.max_steps if self.options.max_steps else 0.0
        )
        self.optimizer.zero_grad()
        frames = 0
        for batch in batches:
            batch = self.usable(batch).to(self.device)
            terms = self.objective(batch, progress.step, share)
            if terms is None:
                continue
            terms.total.backward()
            frames += terms.frames
            self.metrics.add_losses(terms)
            self.metrics.count(
                audio=sum(batch.durations),
                places=batch.features.size(0) * batch.features.size(1),
                valid=int(batch.feature_lengths.sum()),
            )
        progress.step += 1
        progress.dropped = self.usable.total_dropped
        if frames > 0:
            self.optimizer.scale_grad(1.0 / frames)
            self._update()

    def _update(self) -> None:
        norm = float(self.optimizer.grad_norm())
        if norm == norm and norm != float("inf"):
            self.skipped_in_a_row = 0
            self.metrics.count(grad_norm=norm)
            self.optimizer.step(self._rate(), norm)
            return
        self.progress.skipped_steps += 1
        self.skipped_in_a_row += 1
        logging.warning(
            "step %d skipped: its gradient is not finite", self.progress.step
        )
        if self.skipped_in_a_row >= self.MAX_SKIPPED:
            raise UserError(
                f"the gradient was not finite in {self.MAX_SKIPPED} steps in a row; "
                "lower optim.lr or look at the data named in the log"
            )

    def _rate(self) -> float:
        return self.config.optim.rate(
            max(self.progress.step, 1), self.options.max_steps
        )

    def _end_epoch(self, read_clock: Callable[[], None]) -> None:
        progress, epoch = self.progress, self.progress.epoch
        result = validate(
            self.model, self.tokenizer, self.config, self.device, self.lexicon
        )
        pictures = self._pictures() if self.options.tensorboard else {}
        read_clock()
        progress.epoch += 1
        better = result.loss < progress.best_valid_loss
        progress.best_valid_loss = min(result.loss, progress.best_valid_loss)
        self.monitor.valid(result, progress, epoch, pictures)
        path = self.exp_dir / f"epoch-{epoch}.pt"
        # A kill at any point below is mended by the resumed run, which comes here again: last.pt,
        # which says that the epoch is over, is written last.
        self._save(path)
        ckpt.note_valid_loss(
            self.exp_dir,
            {
                "epoch": epoch,
                "step": progress.step,
                "valid_loss": result.loss,
                "wer": result.wer,
            },
        )
        if better:
            ckpt.link(path, self.exp_dir / ckpt.BEST)
        ckpt.link(path, self.exp_dir / ckpt.LAST)
        ckpt.prune(self.exp_dir, self.options.keep_last, self.options.keep_epochs)

    def _pictures(self) -> dict:
        data = self.config.data
        for batch in eval_loader(data.valid_cuts, data, self.tokenizer):
            batch = UtteranceFilter()(batch)
            if batch.ids:
                return draw(self.model, batch.to(self.device), self.config.loss)
        return {}

    def _save(self, path: Path) -> None:
        used = peak_memory_gib(self.device)
        self.progress.memory_gib = max(self.progress.memory_gib, used)
        ckpt.save_checkpoint(
            path,
            {
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "progress": asdict(self.progress),
                "random": get_random_state(),
                "config": to_dict(self.config),
                "fingerprint": self.fingerprint,
            },
        )


def _groups(batches: Iterable[Batch], size: int) -> Iterator[List[Batch]]:
    iterator = iter(batches)
    while group := list(itertools.islice(iterator, size)):
        yield group


def _sizes(model: nn.Module) -> str:
    parts = {
        name: sum(p.numel() for p in child.parameters())
        for name, child in model.named_children()
    }
    total = sum(parts.values())
    detail = ", ".join(
        f"{name} {count / 1e6:.2f}" for name, count in parts.items() if count
    )
    return f"{total / 1e6:.2f} M parameters: {detail}"

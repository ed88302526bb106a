"""The training loop."""

import itertools
import logging
import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List

import torch
from torch import nn

from icefall_attn.config import RunConfig, to_dict
from icefall_attn.data.batch import Batch
from icefall_attn.data.lexicon import load_lexicon
from icefall_attn.data.loader import AUTO, corpus_of, eval_loader, train_loader
from icefall_attn.data.tokenizer import Tokenizer
from icefall_attn.device import choose_device, describe, peak_memory_gib
from icefall_attn.errors import UserError
from icefall_attn.files import remove_leftovers
from icefall_attn.nn.dropout import begin_step
from icefall_attn.rnnt.lattice import choose_backend
from icefall_attn.training import checkpoint as ckpt
from icefall_attn.training import memory
from icefall_attn.training.allocator import keep_freed_memory
from icefall_attn.training.augment import SpecAugment
from icefall_attn.training.bad_steps import dump
from icefall_attn.training.group import Group
from icefall_attn.training.interruption import Interruption, decide
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
from icefall_attn.training.state import TrainState
from icefall_attn.training.stopwatch import Stopwatch
from icefall_attn.training.usable import UtteranceFilter
from icefall_attn.training.validation import validate
from icefall_attn.training.writer import CheckpointWriter


class Trainer(TrainState):
    """Trains a transducer as a `RunConfig` says, and goes on where an earlier run stopped.

    Args:
      config: the run.
      tokenizer: its tokens.
      group: the processes that train together; all have the same config.
    """

    MAX_SKIPPED = 20  # steps in a row

    def __init__(self, config: RunConfig, tokenizer: Tokenizer, group: Group = Group()):
        self.config = config
        self.options = config.train
        self.tokenizer = tokenizer
        self.group = group
        self.exp_dir = Path(config.exp_dir)
        self.device = choose_device(config.train.device)
        if self.device.type == "cpu":
            keep_freed_memory()
        seed_everything(config.train.seed)
        super().__init__(config, self.device, group.size)
        if config.spec_augment.enabled:
            self.model.spec_augment = SpecAugment(config.spec_augment)
        if group.rank > 0:  # the same weights as the others, but dropout of its own
            seed_everything(config.train.seed + 7919 * group.rank)
        self.usable = UtteranceFilter()
        lexicon_dir = config.data.lexicon_dir
        self.lexicon = load_lexicon(lexicon_dir) if lexicon_dir else None
        self.objective = Objective(
            self.model, config.loss, self.usable.drop, self.lexicon
        )
        self.metrics, self.stopwatch = Metrics(), Stopwatch(self.device)
        self.interruption = Interruption()
        self.writer = CheckpointWriter()
        self.skipped_in_a_row = 0
        self.fingerprint = fingerprint(config, tokenizer, self.lexicon)
        if group.leads:
            remove_leftovers(self.exp_dir)
        logging.info("%s", _sizes(self.model))
        backend = choose_backend(config.loss.backend, self.device.type)
        logging.info("the loss sums over alignments with %s", backend)

    def resume(self) -> None:
        """Takes up an earlier run of the experiment directory where it stopped, if there is one.

        Raises:
          UserError: if that run was another one: other options, tokens or data.
        """
        found = ckpt.newest_checkpoint(self.exp_dir) if self.group.leads else None
        path = self.group.told(found and str(found[0]))
        if path is None:
            self._look_at_memory()
            if self.options.init_from:
                self.start_from(self.config, self.tokenizer)
            return
        saved = found[1] if found else ckpt.load_checkpoint(Path(path))
        if self.config.data.max_duration == AUTO:
            self.config.data.max_duration = saved["config"]["data"]["max_duration"]
        check_same_run(path, saved, self.config, self.fingerprint)
        self.load(saved)
        logging.info(
            "resuming from %s: epoch %d, %d of its batches done, step %d",
            path,
            self.progress.epoch,
            self.progress.batches,
            self.progress.step,
        )
        self.progress.go_on_with(self.group.size)
        if self.group.rank < len(saved["random"]):
            set_random_state(saved["random"][self.group.rank])
        else:
            seed_everything(
                self.options.seed + 7919 * self.group.rank + self.progress.step
            )
        if self._finished():
            logging.info(
                "nothing is left to train; train.num_epochs or a new exp_dir adds more"
            )

    def _look_at_memory(self) -> None:
        """Finds ``data.max_duration`` if it is ``auto``, and logs what the heaviest batches take."""
        data, share = self.config.data, self.group.share()

        def load(duration: float) -> List[Batch]:
            cfg = replace(data, max_duration=duration, sort_first_epoch=False)
            loader = train_loader(cfg, self.tokenizer, 1, self.options.seed, share)
            return loader.heaviest()

        if data.max_duration == AUTO:
            audio = float(corpus_of(data).durations.sum())
            data.max_duration = memory.choose_duration(self, load, audio)
        if self.options.check_memory:
            memory.report(self, load(data.max_duration))

    def run(self) -> None:
        """Trains until the last epoch or step.

        Raises:
          Interrupted: a signal asked one of the processes to stop; a checkpoint is written.
          PeerLost: another process has ended.
        """
        self.group.take_over(self.optimizer.vectors)
        self.monitor = Monitor(
            self.exp_dir, self.options, self.progress.step, shown=self.group.leads
        )
        read_clock = self.progress.clock()
        if self.group.leads:
            self.writer.prepare(self._checkpoint([]))
        try:
            with self.interruption:
                while not self._finished():
                    self._train_epoch(read_clock)
                    self._end_epoch(read_clock)
                self.writer.wait()
        finally:
            self.monitor.close()
            self.writer.wait()
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
            self.group.share(earlier=progress.parts_before(), turns=progress.batches),
        )
        begin = time.monotonic()
        for batches in _groups(loader, self.options.accumulate):
            waited = time.monotonic() - begin
            votes = self._step(batches)
            progress.batches += len(batches)
            read_clock()
            self.metrics.count(waited=waited, seconds=time.monotonic() - begin, steps=1)
            if progress.step % self.options.log_every == 0:
                measured = self.metrics.take(self.stopwatch.take(), self.group)
                self.monitor.train(measured, progress, self._rate(), self.model)
            interrupted = decide(votes)
            if 0 < self.options.max_steps <= progress.step and not interrupted:
                break
            if interrupted or progress.step % self.options.save_every == 0:
                self._save_step(essential=bool(interrupted))
            if interrupted:
                self.writer.wait()
                self.group.gather(None)  # nobody leaves before all is written
                raise interrupted
            begin = time.monotonic()
        progress.end_of_epoch()

    def _step(self, batches: List[Batch]) -> List[float]:
        """One update from one or more batches of each process, normalised by their encoder frames.

        Returns:
          The sums of the processes' votes for an interruption.
        """
        progress = self.progress
        begin_step(self.model, progress.step >= self.options.regularise_after)
        share = (
            progress.step / self.options.max_steps if self.options.max_steps else 0.0
        )
        self.optimizer.zero_grad()
        frames, dropped = 0, self.usable.total_dropped
        for batch in batches:
            batch = self.usable(batch)
            self.metrics.count(
                audio=sum(batch.durations),
                places=batch.features.size(0) * batch.features.size(1),
                valid=int(batch.feature_lengths.sum()),
            )
            batch = batch.to(self.device)
            with self.stopwatch.part("forward"), self.precision.autocast():
                terms = self.objective(batch, progress.step, share)
            if terms is None:
                continue
            with self.stopwatch.part("backward"):
                (terms.total * self.precision.scale).backward()
            frames += terms.frames
            self.metrics.add_losses(terms)
        dropped = self.usable.total_dropped - dropped
        with self.stopwatch.part("exchange"):
            frames, dropped, *votes = self._sums(
                [frames, dropped, *self.interruption.votes()]
            )
        progress.step += 1
        progress.dropped += int(dropped)
        if frames > 0:
            self.optimizer.scale_grad(1.0 / (frames * self.precision.scale))
            with self.stopwatch.part("update"):
                updated = self._update()
            if not updated:
                dump(self.exp_dir, progress.step, self.group.rank, batches)
        self.mean.after_step(progress.step)
        return votes

    def _sums(self, counts: List[float]) -> List[float]:
        """Sums over the processes: of the gradients, in their places, and of some counts.

        Running statistics (of normalisations) become the means of all processes' after each step, so
        that they do not depend on when a checkpoint is written.
        """
        if self.group.size == 1:
            return counts
        statistics = [
            value for value in self.model.buffers() if value.is_floating_point()
        ]
        told = torch.tensor(counts, dtype=torch.float64, device=self.device)
        told = torch.cat([told, *(value.double() for value in statistics)])
        self.group.add([*self.optimizer.grads, told])
        told, *means = told.split([len(counts), *(v.numel() for v in statistics)])
        for value, mean in zip(statistics, means):
            value.copy_(mean / self.group.size)
        return told.tolist()

    def _update(self) -> bool:
        """One step of the optimiser; False if it was skipped for a gradient that is not finite.

        All processes have the same gradient and do the same.
        """
        norm = float(self.optimizer.grad_norm())
        finite = math.isfinite(norm)
        if self.precision.after_step(finite):
            logging.info(
                "step %d skipped: float16 overflows; the loss is scaled by %g from here on",
                *(self.progress.step, self.precision.scale),
            )
            return True
        if finite:
            self.skipped_in_a_row = 0
            self.metrics.count(grad_norm=norm)
            self.optimizer.step(self._rate(), norm)
            return True
        self.progress.skipped_steps += 1
        self.skipped_in_a_row += 1
        logging.warning(
            "step %d skipped: its gradient is not finite", self.progress.step
        )
        if self.skipped_in_a_row >= self.MAX_SKIPPED:
            raise UserError(
                f"the gradient was not finite in {self.MAX_SKIPPED} steps in a row; lower optim.lr"
                f" or look at the batches in {self.exp_dir}/bad-steps"
            )
        return False

    def _rate(self) -> float:
        return self.config.optim.rate(
            max(self.progress.step, 1), self.options.max_steps
        )

    def _end_epoch(self, read_clock: Callable[[], None]) -> None:
        progress, epoch = self.progress, self.progress.epoch
        result = validate(
            self.model,
            self.tokenizer,
            self.config,
            self.device,
            self.lexicon,
            self.group,
        )
        wanted = self.options.tensorboard and self.group.leads
        pictures = self._pictures() if wanted else {}
        read_clock()
        progress.epoch += 1
        better = result.loss < progress.best_valid_loss
        progress.best_valid_loss = min(result.loss, progress.best_valid_loss)
        self.monitor.valid(result, progress, epoch, pictures)
        path = self.exp_dir / f"epoch-{epoch}.pt"
        noted = {
            "epoch": epoch,
            "step": progress.step,
            "valid_loss": result.loss,
            "wer": result.wer,
        }

        # A kill at any point below is mended by the resumed run, which comes here again: last.pt,
        # which says that the epoch is over, is written last.
        def name_it() -> None:
            ckpt.note_valid_loss(self.exp_dir, noted)
            if better:
                ckpt.link(path, self.exp_dir / ckpt.BEST)
            self._is_last(path)

        self._save(path, name_it)

    def _save_step(self, essential: bool) -> None:
        path = self.exp_dir / f"checkpoint-{self.progress.step}.pt"
        self._save(path, lambda: self._is_last(path), essential)

    def _is_last(self, path: Path) -> None:
        ckpt.link(path, self.exp_dir / ckpt.LAST)
        ckpt.prune(self.exp_dir, self.options.keep_last, self.options.keep_epochs)

    def _pictures(self) -> dict:
        data = self.config.data
        for batch in eval_loader(data.valid_cuts, data, self.tokenizer):
            batch = UtteranceFilter()(batch)
            if batch.ids:
                return draw(self.model, batch.to(self.device), self.config.loss)
        return {}

    def _save(
        self, path: Path, then: Callable[[], None], essential: bool = True
    ) -> None:
        used = peak_memory_gib(self.device)
        self.progress.memory_gib = max(self.progress.memory_gib, used)
        self.progress.machine = describe(self.device)
        random = self.group.gather(get_random_state())
        if self.group.leads:
            self.writer.write(path, self._checkpoint(random), then, essential)

    def _checkpoint(self, random: List[Any]) -> Dict[str, Any]:
        """All that is written, with the states of random numbers of all processes."""
        return {
            **self.values(),
            "random": random,
            "config": to_dict(self.config),
            "fingerprint": self.fingerprint,
        }


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

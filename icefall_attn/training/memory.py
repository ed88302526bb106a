"""What memory a training needs: its heaviest batches, tried before it begins."""

import logging
import math
import os
from contextlib import contextmanager
from pathlib import Path
from typing import Callable, Iterator, List, NamedTuple

import torch

from icefall_attn.data.batch import Batch
from icefall_attn.decoding.recognizer import is_out_of_memory
from icefall_attn.device import peak_memory_gib
from icefall_attn.errors import UserError
from icefall_attn.nn.dropout import begin_step
from icefall_attn.training.allocator import release_freed_memory
from icefall_attn.training.objective import Objective
from icefall_attn.training.random_state import get_random_state, set_random_state
from icefall_attn.training.usable import UtteranceFilter

USED = 0.85  # share of the memory that ``auto`` plans with
FIRST = 60.0  # seconds of audio that ``auto`` tries first
LEAST_BATCHES = 100  # of an epoch, for each process


class Need(NamedTuple):
    """GiB that the process takes at most with some batches, and the heaviest of them in words."""

    gib: float
    batch: str


def heaviest(batches: List[Batch]) -> List[Batch]:
    """Of a few batches, those of most frames, of most work in attention and of most cells in the loss."""

    def frames(batch: Batch) -> int:
        return batch.features.size(0) * batch.features.size(1)

    def longest(batch: Batch) -> int:
        return max(map(len, batch.tokens), default=0)

    keys: List[Callable[[Batch], int]] = [
        frames,
        lambda batch: frames(batch) * batch.features.size(1),
        lambda batch: frames(batch) * longest(batch),
    ]
    chosen = [max(range(len(batches)), key=lambda i: key(batches[i])) for key in keys]
    return [batches[i] for i in dict.fromkeys(chosen)]


def measure(trainer, batches: List[Batch]) -> Need:
    """Forward and backward passes with the heaviest batches; the training stays as it was.

    Raises:
      UserError: they do not fit.
    """
    usable = UtteranceFilter()
    usable.named = trainer.usable.named  # who is left out is told once
    words = "no batch"
    with _unchanged(trainer):
        _reset_peak(trainer.device)
        for batch in heaviest(batches):
            batch = usable(batch)
            if not batch.ids:
                continue
            seconds = max(batch.durations)
            labels = max(map(len, batch.tokens))
            words = f"{len(batch.ids)} utterances of up to {seconds:.1f} s and {labels} labels"
            try:
                _rehearse(trainer, batch.to(trainer.device))
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                raise UserError(
                    f"a batch of {words} does not fit the memory; lower"
                    f" data.max_duration={trainer.config.data.max_duration} or set it to auto"
                ) from None
        return Need(peak_memory_gib(trainer.device), words)


def available_gib(device: torch.device) -> float:
    """What this process may take in all: of the GPU, or its share of the machine or the control group."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return (free + torch.cuda.memory_reserved(device)) / 2**30
    limits = [_meminfo("MemAvailable") / 2**20 + _resident_gib()]
    for path in ("memory.max", "memory/memory.limit_in_bytes"):
        try:
            limits.append(int(Path("/sys/fs/cgroup", path).read_text()) / 2**30)
        except (OSError, ValueError):  # no such file, or "max"
            pass
    return min(limits) / int(os.environ.get("LOCAL_WORLD_SIZE", 1))


def fitting_duration(
    need: Callable[[float], float], available: float, most: float
) -> float:
    """The largest ``data.max_duration``, in whole tens of seconds, whose batches fit.

    Memory grows about linearly with it: two tries give the line, a third one says whether it holds.

    Args:
      need: GiB with batches of so many seconds.
      available: GiB.
      most: seconds that are enough in any case.

    Raises:
      UserError: not even `FIRST` seconds fit.
    """
    target, first = USED * available, min(FIRST, most)
    low, high = need(first), need(2 * first)
    if low > target:
        raise UserError(
            f"batches of {first:g} s take {low:.2f} GiB of {available:.2f}; use a smaller model, less"
            " precision (train.precision) or another device"
        )
    slope = max(high - low, 1e-6) / first
    duration = min(first + (target - low) / slope, most)
    while True:
        duration = max(math.floor(duration / 10) * 10.0, min(first, 10.0))
        if duration <= first or need(duration) <= target:
            return duration
        duration = max(0.9 * duration - 5, first)


def choose_duration(
    trainer, load: Callable[[float], List[Batch]], audio: float
) -> float:
    """What ``data.max_duration=auto`` stands for, the same for all processes.

    Args:
      trainer: of the model.
      load: some heavy batches of an epoch for a given ``max_duration``.
      audio: seconds in an epoch.
    """
    most = max(audio / trainer.group.size / LEAST_BATCHES, 10.0)
    available = available_gib(trainer.device)

    def need(duration: float) -> float:
        taken = measure(trainer, load(duration)).gib
        logging.info(
            "batches of %g s take %.2f of %.2f GiB", duration, taken, available
        )
        return taken

    chosen = min(trainer.group.gather(fitting_duration(need, available, most)))
    logging.info("data.max_duration=auto is %g s", chosen)
    return chosen


def report(trainer, batches: List[Batch]) -> None:
    """Logs what the heaviest batches take."""
    need, available = measure(trainer, batches), available_gib(trainer.device)
    logging.info(
        "memory: %.2f of %.2f GiB with the heaviest batches, the last of them %s",
        need.gib,
        available,
        need.batch,
    )
    if need.gib > 0.95 * available:
        logging.warning(
            "this is nearly all there is; a lower data.max_duration is safer, or auto"
        )


def _rehearse(trainer, batch: Batch) -> None:
    """One batch as in the middle of a training, when all terms of the loss count."""
    begin_step(trainer.model, True)
    trainer.optimizer.zero_grad()
    objective = Objective(
        trainer.model, trainer.config.loss, lambda *_: None, trainer.lexicon
    )
    with trainer.precision.autocast():
        terms = objective(batch, 10**9, 0.5)
    if terms is not None:
        (terms.total * trainer.precision.scale).backward()


@contextmanager
def _unchanged(trainer) -> Iterator[None]:
    """Random numbers, running statistics, gradients and counts are in the end what they were."""
    model = trainer.model
    random, training = get_random_state(), model.training
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    model.train()
    try:
        yield
    finally:
        model.train(training)
        trainer.optimizer.zero_grad()
        for buffer, before in buffers:
            buffer.copy_(before)
        for module in model.modules():
            if hasattr(module, "watch"):
                module.watch()
        set_random_state(random)


def _reset_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        return
    release_freed_memory()
    try:
        Path("/proc/self/clear_refs").write_text("5")  # VmHWM becomes VmRSS
    except OSError:  # not Linux, or not allowed: the peak is that of the process
        pass


def _meminfo(name: str) -> float:
    """KiB; infinite where the system does not say."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return float(line.split()[1])
    except OSError:
        pass
    return math.inf


def _resident_gib() -> float:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**30

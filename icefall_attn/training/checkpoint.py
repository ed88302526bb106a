"""Checkpoints: written whole or not at all, loaded strictly."""

import io
import json
import logging
import os
from pathlib import Path
from typing import Any, Dict, Optional, Tuple

import torch
from torch import Tensor

from icefall_attn.errors import UserError
from icefall_attn.files import atomic_write, temporary_path


class Damaged(UserError):
    """A file that should be a checkpoint cannot be read as one."""


BEST = "best-valid-loss.pt"
LAST = "last.pt"
VALID_LOSSES = "valid-losses.jsonl"


def save_checkpoint(path: Path, values: Dict[str, Any]) -> None:
    """Writes tensors and builtins; a kill or a full disk (`OSError`) leaves the old file as it was.

    An entry without tensors is stored as JSON text, since the safe loader of torch 1.13 reads no
    Python floats; an entry with tensors may hold tensors, integers and strings.
    """
    stored = {k: v if _has_tensor(v) else json.dumps(v) for k, v in values.items()}
    # by way of the memory: torch's own writer ends the process when the disk is full
    buffer = io.BytesIO()
    torch.save(stored, buffer)
    with atomic_write(path, "wb") as file:
        file.write(buffer.getbuffer())


def load_checkpoint(path: Path) -> Dict[str, Any]:
    """Reads what `save_checkpoint` wrote.

    Raises:
      UserError: if the file is missing.
      Damaged: if it is not a whole checkpoint.
    """
    if not path.is_file():
        raise UserError(f"no checkpoint {path}")
    try:
        stored = torch.load(path, map_location="cpu", weights_only=True)
        return {
            k: json.loads(v) if isinstance(v, str) else v for k, v in stored.items()
        }
    except Exception as error:  # zip, pickle and unpickling errors of many kinds
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise Damaged(f"{path} is damaged or not a checkpoint: {reason}") from None


def newest_checkpoint(directory: Path) -> Optional[Tuple[Path, Dict[str, Any]]]:
    """The newest checkpoint from which a training can go on, and its values; None if there is none.

    That is ``last.pt``, or what was written before it if it is missing or damaged, which is logged.

    Raises:
      UserError: there are checkpoints, all of them damaged.
    """
    found = [*directory.glob("checkpoint-*.pt"), *directory.glob("epoch-*.pt")]
    found.sort(key=lambda path: path.stat().st_mtime_ns, reverse=True)
    last = directory / LAST
    if last.is_file():
        found.insert(0, last)
    elif found:
        logging.warning("%s is missing; trying %s", last, found[0])
    for path in found:
        try:
            return path, load_checkpoint(path)
        except Damaged as error:
            logging.warning("%s; trying the one before it", error)
    if not found:
        return None
    raise UserError(
        f"all checkpoints in {directory} are damaged; train anew (train.sh --force true)"
    )


def _has_tensor(value: Any) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return any(_has_tensor(item) for item in value)
    return isinstance(value, Tensor)


def link(source: Path, target: Path) -> None:
    """Gives a written checkpoint a second name, in one step, without writing it again."""
    temporary = temporary_path(target)
    temporary.unlink(missing_ok=True)
    try:
        os.link(source, temporary)
    except OSError:  # a file system without hard links
        with atomic_write(target, "wb") as file, open(source, "rb") as original:
            while block := original.read(1 << 24):
                file.write(block)
        return
    os.replace(temporary, target)
    temporary.unlink(missing_ok=True)  # replacing a name of the same file leaves both


def read_valid_losses(directory: Path) -> Dict[int, float]:
    """Valid loss by epoch; what was noted last wins."""
    path = directory / VALID_LOSSES
    if not path.is_file():
        return {}
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return {line["epoch"]: line["valid_loss"] for line in lines}


def note_valid_loss(directory: Path, line: Dict[str, Any]) -> None:
    """Adds an epoch's results to the list that averaging chooses from."""
    path = directory / VALID_LOSSES
    old = path.read_text() if path.is_file() else ""
    with atomic_write(path) as file:
        file.write(old + json.dumps(line) + "\n")


def prune(directory: Path, keep_last: int, keep_epochs: int) -> None:
    """Deletes all but the newest ``checkpoint-STEP.pt`` and the newest and best ``epoch-N.pt``."""

    def number(path: Path) -> int:
        return int(path.stem.split("-")[1])

    steps = sorted(directory.glob("checkpoint-*.pt"), key=number)
    for path in steps[:-keep_last]:
        path.unlink()
    if keep_epochs == 0:
        return
    losses = read_valid_losses(directory)
    epochs = sorted(directory.glob("epoch-*.pt"), key=number)
    best = sorted(epochs, key=lambda path: losses.get(number(path), float("inf")))
    for path in set(epochs) - set(epochs[-keep_epochs:]) - set(best[:keep_epochs]):
        path.unlink()

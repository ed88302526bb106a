"""Checkpoints: written whole or not at all, loaded strictly, averaged."""

import io
import json
import logging
import os
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from icefall_attn.data.tokenizer import Tokenizer, load_tokenizer
from icefall_attn.errors import UserError
from icefall_attn.files import atomic_write, temporary_path
from icefall_attn.training.running_mean import mean_between


class Damaged(UserError):
    """A file that should be a checkpoint cannot be read as one."""


BEST = "best-valid-loss.pt"
LAST = "last.pt"
VALID_LOSSES = "valid-losses.jsonl"
CHOICES = ("valid-loss", "epoch", "running-mean")  # ways to average epochs


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


def average(states: List[Dict[str, Tensor]]) -> Dict[str, Tensor]:
    """The mean of models' state dicts: floats in float64, integers from the last one."""
    result = {}
    for name, value in states[-1].items():
        if value.is_floating_point():
            total = sum(state[name].double() for state in states)
            result[name] = (total / len(states)).to(value.dtype)
        else:
            result[name] = value
    return result


class Experiment(NamedTuple):
    """A trained model with all that decoding needs."""

    model: torch.nn.Module
    tokenizer: Tokenizer
    config: Any
    name: str


def load_experiment(
    exp_dir: str, avg: int = 1, by: str = "valid-loss", checkpoint: Optional[str] = None
) -> Experiment:
    """Builds the model from an experiment directory alone.

    Args:
      exp_dir: the directory of a training run.
      avg: epochs to average.
      by: ``valid-loss`` averages those of the lowest valid loss, ``epoch`` the last ones, and
        ``running-mean`` takes the mean over all steps of the last ones (`RunningMean`).
      checkpoint: a file in ``exp_dir`` (such as ``last.pt``) to take instead of epochs.

    Returns:
      The model in evaluation mode on the CPU, tokenizer, config, and the name for result files.

    Raises:
      UserError: if there is nothing to load, or too few epochs.
    """
    from icefall_attn.config import RunConfig, from_dict
    from icefall_attn.transducer.model import Transducer

    directory = Path(exp_dir)
    if not directory.is_dir():
        raise UserError(f"no experiment directory {exp_dir}")
    if checkpoint is not None:
        paths, name = [directory / checkpoint], checkpoint.removesuffix(".pt")
    else:
        paths, name = _choose(directory, avg, by)
    loaded = [load_checkpoint(path) for path in paths]
    config = from_dict(RunConfig, loaded[-1]["config"])
    tokenizer = load_tokenizer(directory / "lang")
    if tokenizer.vocab_size != config.model.vocab_size:
        raise UserError(
            f"{directory / 'lang'} has {tokenizer.vocab_size} tokens but the model was trained "
            f"with {config.model.vocab_size}; they do not belong together"
        )
    model = Transducer(config.model)
    combine = running_mean if by == "running-mean" and not checkpoint else average_all
    model.load_state_dict(combine(loaded))
    return Experiment(model.eval(), tokenizer, config, name)


def average_all(loaded: List[Dict[str, Any]]) -> Dict[str, Tensor]:
    """The `average` of checkpoints' models."""
    return average([values["model"] for values in loaded])


def running_mean(loaded: List[Dict[str, Any]]) -> Dict[str, Tensor]:
    """The mean over the steps between two checkpoints, or from the first step to a single one.

    Raises:
      UserError: the training kept no running mean, or took no sample between.
    """
    first, last = loaded[0] if len(loaded) == 2 else None, loaded[-1]
    try:
        means = mean_between(first and first["running_mean"], last["running_mean"])
    except ValueError:
        every = last["config"]["train"]["average_every"]
        raise UserError(
            f"the training took no sample of its weights there (train.average_every={every}); average"
            " over more epochs, or choose another --by"
        ) from None
    state = last["model"]
    return {
        name: means.get(name, value).to(value.dtype) for name, value in state.items()
    }


def _choose(directory: Path, avg: int, by: str) -> tuple:
    if avg < 1:
        raise UserError(f"avg must be at least 1, not {avg}")
    if by not in CHOICES:
        raise UserError(f"by must be one of {', '.join(CHOICES)}, not {by!r}")
    losses = read_valid_losses(directory)
    if len(losses) < avg:
        raise UserError(
            f"{directory} has {len(losses)} epochs, too few to average {avg}; "
            "train longer or ask for less"
        )
    last = max(losses)
    if by == "running-mean":
        chosen = [epoch for epoch in (last - avg, last) if epoch > 0]
        name = f"epoch-{last}_running-mean-{avg}"
    elif by == "epoch":
        chosen = sorted(losses)[-avg:]
        name = f"epoch-{last}_avg-{avg}"
    else:
        chosen = sorted(sorted(losses, key=lambda epoch: losses[epoch])[:avg])
        name = f"best_avg-{avg}"
    paths = [directory / f"epoch-{epoch}.pt" for epoch in chosen]
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        raise UserError(
            f"{directory} no longer has {', '.join(missing)}; average fewer than {avg}, or train "
            "with a larger train.keep_epochs"
        )
    return paths, name


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

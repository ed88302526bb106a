"""A trained model, made of the epochs of an experiment directory."""

from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional

import torch
from torch import Tensor

from icefall_attn.data.tokenizer import Tokenizer, load_tokenizer
from icefall_attn.errors import UserError
from icefall_attn.training.checkpoint import load_checkpoint, read_valid_losses
from icefall_attn.training.running_mean import mean_between

CHOICES = ("valid-loss", "epoch", "running-mean")  # ways to average epochs


class Experiment(NamedTuple):
    """A trained model with all that decoding needs."""

    model: torch.nn.Module
    tokenizer: Tokenizer
    config: Any
    name: str


def load_experiment(
    exp_dir: str,
    avg: int = 1,
    by: str = "valid-loss",
    checkpoint: Optional[str] = None,
    epoch: Optional[int] = None,
) -> Experiment:
    """Builds the model from an experiment directory alone.

    Args:
      exp_dir: the directory of a training run.
      avg, by, epoch: which epochs; see `choose`.
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
        paths, name = choose(directory, avg, by, epoch)
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


class Choice(NamedTuple):
    """Checkpoints to average, in the order of the training, and a name for result files."""

    paths: List[Path]
    name: str


def choose(
    directory: Path, avg: int, by: str = "valid-loss", epoch: Optional[int] = None
) -> Choice:
    """Which epochs of an experiment make a model.

    Args:
      directory: of the experiment.
      avg: how many.
      by: ``valid-loss`` averages those of the lowest valid loss, ``epoch`` the last ones, and
        ``running-mean`` takes the mean over all steps of the last ones (`RunningMean`).
      epoch: the last one to look at; None for that of the training so far.

    Raises:
      UserError: there are too few, or their files were deleted.
    """
    if avg < 1:
        raise UserError(f"avg must be at least 1, not {avg}")
    if by not in CHOICES:
        raise UserError(f"by must be one of {', '.join(CHOICES)}, not {by!r}")
    losses = read_valid_losses(directory)
    if epoch is not None:
        if epoch not in losses:
            known = ", ".join(map(str, losses)) or "none"
            raise UserError(f"{directory} has no epoch {epoch}, only {known}")
        losses = {number: loss for number, loss in losses.items() if number <= epoch}
    if len(losses) < avg:
        raise UserError(
            f"{directory} has {len(losses)} epochs{'' if epoch is None else f' up to {epoch}'}, too few"
            f" to average {avg}; train longer or ask for less"
        )
    last = max(losses)
    if by == "running-mean":
        chosen = [number for number in (last - avg, last) if number > 0]
        name = f"epoch-{last}_running-mean-{avg}"
    elif by == "epoch":
        chosen = sorted(losses)[-avg:]
        name = f"epoch-{last}_avg-{avg}"
    else:
        chosen = sorted(sorted(losses, key=lambda number: losses[number])[:avg])
        name = f"best_avg-{avg}" if epoch is None else f"best-to-{epoch}_avg-{avg}"
    paths = [directory / f"epoch-{number}.pt" for number in chosen]
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        raise UserError(
            f"{directory} no longer has {', '.join(missing)}; average fewer than {avg}, or train "
            "with a larger train.keep_epochs"
        )
    return Choice(paths, name)


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

"""A whole training run as dataclasses, from which the command line and the YAML files are made.

The values of a checkpoint's run are stored in it, so that decoding, averaging, export and
resuming never ask for the model's options again.
"""

import dataclasses
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Optional, Type

import yaml
from jsonargparse import ActionConfigFile, ArgumentParser

from icefall_attn.data.features import feature_dim
from icefall_attn.data.loader import DataConfig
from icefall_attn.errors import UserError
from icefall_attn.files import atomic_write
from icefall_attn.rnnt.config import LossConfig
from icefall_attn.training.augment import SpecAugmentConfig
from icefall_attn.training.schedule import OptimConfig
from icefall_attn.training.options import TrainConfig
from icefall_attn.transducer.model import TransducerConfig


@dataclass
class RunConfig:
    """Everything that determines a training run.

    Attributes:
      exp_dir: the experiment directory; made if missing, continued if it holds ``last.pt``.
      data: corpora, batches.
      model: the transducer.
      loss: the training loss.
      spec_augment: masking of features in training.
      optim: optimiser and schedule.
      train: steps, validation, checkpoints.
    """

    exp_dir: str = "exp"
    data: DataConfig = field(default_factory=DataConfig)
    model: TransducerConfig = field(default_factory=TransducerConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    spec_augment: SpecAugmentConfig = field(default_factory=SpecAugmentConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    train: TrainConfig = field(default_factory=TrainConfig)

    def __post_init__(self):
        self.optim.rate(
            1, self.train.max_steps
        )  # a schedule that does not fit says so now
        self.model.encoder.check_longest(self.data.max_utterance)
        dim = feature_dim(self.data.features)
        if self.model.encoder.feature_dim != dim:
            raise UserError(
                f"model.encoder.feature_dim={self.model.encoder.feature_dim} but "
                f"data.features={self.data.features} has {dim} dimensions; set it to {dim}"
            )


def to_dict(config: Any) -> Dict[str, Any]:
    """A config dataclass as plain dictionaries, lists and scalars."""
    return dataclasses.asdict(config)


def from_dict(cls: Type[Any], values: Dict[str, Any]) -> Any:
    """The inverse of `to_dict`; an unknown name is an error, a missing one takes its default."""
    fields = {f.name: f for f in dataclasses.fields(cls)}
    unknown = sorted(set(values) - set(fields))
    if unknown:
        raise UserError(f"unknown option {unknown[0]!r} for {cls.__name__}")
    made = {}
    for name, value in values.items():
        kind = fields[name].type
        made[name] = from_dict(kind, value) if dataclasses.is_dataclass(kind) else value
    return cls(**made)


def save_yaml(config: Any, path: Path) -> None:
    """Writes a config where a person can read it."""
    with atomic_write(path) as file:
        yaml.safe_dump(to_dict(config), file, sort_keys=False)


def parse(
    cls: Type[Any], args: Optional[List[str]] = None, **parser_options: Any
) -> Any:
    """A config from the command line: ``--config FILE.yaml`` and ``--group.option value``.

    Files and options are read from left to right, later ones win; ``--exp-dir`` may be written for
    ``--exp_dir``.

    Raises:
      UserError: for an unknown option or a bad value, naming it.
    """
    parser = ArgumentParser(exit_on_error=False, allow_abbrev=False, **parser_options)
    parser.add_argument(
        "--config",
        action=ActionConfigFile,
        help="YAML file with any of the options below",
    )
    parser.add_class_arguments(cls)
    try:
        values = parser.parse_args(_underscores(sys.argv[1:] if args is None else args))
        values.pop("config", None)
        return cls(**vars(parser.instantiate(values)))
    except UserError:
        raise
    except Exception as error:  # jsonargparse and the dataclasses raise many kinds
        raise UserError(" ".join(str(error).split())) from None


def _underscores(args: List[str]) -> List[str]:
    """Options' names with underscores in place of dashes."""

    def rename(arg: str) -> str:
        if not arg.startswith("--"):
            return arg
        name, *value = arg[2:].split("=", 1)
        return "=".join(["--" + name.replace("-", "_"), *value])

    return [rename(arg) for arg in args]

"""Trains a transducer.

    icefall-attn-train --config conf/train.yaml --exp-dir exp [--group.option value ...]
"""

import logging
import os
import sys
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from typing import List, Optional

from icefall_attn.config import RunConfig, parse, save_yaml
from icefall_attn.data.lexicon import load_lexicon
from icefall_attn.data.loader import worker_death
from icefall_attn.data.tokenizer import Tokenizer, load_tokenizer
from icefall_attn.device import choose_device
from icefall_attn.environment import environment_report
from icefall_attn.errors import LOST, UserError, run_main
from icefall_attn.files import locked
from icefall_attn.training.group import Group, PeerLost, joined_group
from icefall_attn.training.interruption import Interrupted
from icefall_attn.training.trainer import Trainer


def main(args: Optional[List[str]] = None) -> None:
    """Reads the configuration, prepares the experiment directory and trains."""
    config = parse(RunConfig, args, prog="icefall-attn-train", description=__doc__)
    if not config.data.train_cuts or not config.data.valid_cuts:
        raise UserError(
            "data.train_cuts and data.valid_cuts are empty; give --config conf/train.yaml"
        )
    exp_dir = Path(config.exp_dir)
    tokenizer = load_tokenizer(config.data.lang_dir)
    if config.model.vocab_size not in (0, tokenizer.vocab_size):
        raise UserError(
            f"model.vocab_size={config.model.vocab_size} but {config.data.lang_dir} has "
            f"{tokenizer.vocab_size} tokens; leave it at 0"
        )
    config.model.vocab_size = tokenizer.vocab_size
    if config.data.lexicon_dir:
        config.model.inter_ctc_vocab_size = load_lexicon(
            config.data.lexicon_dir
        ).vocab_size
    with joined_group(choose_device(config.train.device)) as group:
        exp_dir.mkdir(parents=True, exist_ok=True)
        with locked(exp_dir) if group.leads else nullcontext():
            start_log(exp_dir, group.rank)
            try:
                train(config, tokenizer, group)
            except Interrupted as interrupted:
                logging.info("%s; the same command goes on from there", interrupted)
                logging.shutdown()
                # At once: on Python's own way out the next signal would kill it, and the first of
                # several processes to end may be why others are sent one.
                os._exit(interrupted.code)
            except PeerLost as lost:
                logging.info("another process of this training has ended: %s", lost)
                sys.exit(LOST)


def train(config: RunConfig, tokenizer: Tokenizer, group: Group = Group()) -> None:
    """Trains from the start or from where the experiment directory's run stopped."""
    exp_dir = Path(config.exp_dir)
    try:
        trainer = Trainer(config, tokenizer, group)
        trainer.resume()
        if group.leads:
            # only now: what lies there may belong to a run that this one must not touch
            tokenizer.save(exp_dir / "lang")
            save_yaml(config, exp_dir / "config.yaml")
        trainer.run()
    # an option out of range, named by the part it belongs to
    except ValueError as error:
        raise UserError(str(error)) from error
    except RuntimeError as error:
        raise worker_death(error) or error


def start_log(exp_dir: Path, rank: int = 0) -> None:
    """Logs to ``log/log-train-DATE``, headed by what the run stands on, and to the console.

    Processes but the first log to ``log-train-DATE-rank-N`` alone.
    """
    (exp_dir / "log").mkdir(parents=True, exist_ok=True)
    name = f"log-train-{datetime.now():%Y-%m-%d-%H-%M-%S}"
    name += f"-rank-{rank}" if rank > 0 else ""
    handlers: List[logging.Handler] = [logging.FileHandler(exp_dir / "log" / name)]
    if rank == 0:
        handlers.append(logging.StreamHandler(sys.stderr))
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(levelname)s [%(filename)s:%(lineno)d] %(message)s",
        handlers=handlers,
        force=True,
    )
    for line in environment_report().splitlines():
        logging.info("%s", line)


def cli() -> None:
    """Entry point of ``icefall-attn-train``."""
    run_main(main)


if __name__ == "__main__":
    cli()

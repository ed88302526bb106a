"""Whether a run that is to be resumed is the one that was interrupted."""

import zlib
from pathlib import Path
from typing import Any, Dict, Iterator, Optional, Tuple

from icefall_attn.config import RunConfig, to_dict
from icefall_attn.data.shar import shard_files
from icefall_attn.data.tokenizer import Tokenizer
from icefall_attn.errors import UserError

# What may be changed between the parts of one run: it does not change what is computed.
FREE = {
    "exp_dir",
    "data.num_workers",
    "data.cache",
    "data.valid_cuts",
    "loss.backend",
    "train.num_epochs",
    "train.check_memory",
    "train.log_every",
    "train.save_every",
    "train.keep_last",
    "train.keep_epochs",
    "train.valid_wer",
    "train.tensorboard",
    "train.device",
}


def fingerprint(
    config: RunConfig, tokenizer: Tokenizer, lexicon: Optional[Tokenizer] = None
) -> Dict[str, int]:
    """Checksums of what the options only name: the tokens and the files of cuts for training."""
    marks = {"tokens": zlib.crc32("\n".join(tokenizer.tokens).encode())}
    if lexicon is not None:
        marks["phones"] = zlib.crc32("\n".join(lexicon.tokens).encode())
    data = config.data
    for path in [*data.train_cuts, *data.noise_cuts, *data.rir_cuts]:
        for file in [Path(path)] if Path(path).is_file() else shard_files(path):
            marks[str(file)] = _checksum(file)
    return marks


def _checksum(path: Path) -> int:
    """CRC-32 of a file's content, which a gzip file already holds near its end."""
    content = path.read_bytes()
    if path.suffix == ".gz" and len(content) >= 8:
        return int.from_bytes(content[-8:-4], "little")
    return zlib.crc32(content)


def check_same_run(
    path: Path, saved: Dict[str, Any], config: RunConfig, marks: Dict[str, int]
) -> None:
    """Refuses to go on with other options, tokens or data than before.

    Raises:
      UserError: naming the first difference and the ways out.
    """
    difference = first_difference(
        saved["config"], _free_of_bounds(saved["config"], config)
    )
    if difference is None and saved["fingerprint"] != marks:
        changed = [
            name for name in marks if saved["fingerprint"].get(name) != marks[name]
        ]
        difference = f"other {changed[0] if changed else 'files'} than before"
    if difference is not None:
        raise UserError(
            f"{path} belongs to another run: {difference}; "
            "choose another --exp-dir, the old options, or train anew (train.sh --force true)"
        )


def _free_of_bounds(old: Dict[str, Any], config: RunConfig) -> Dict[str, Any]:
    new = to_dict(config)
    # where the bound decides neither a learning rate nor the weight of a CTC loss
    heads = new["model"]["ctc"] or new["model"]["inter_ctc_layer"] > 0
    if new["optim"]["schedule"] == "noam" and not heads:
        new["train"]["max_steps"] = old["train"]["max_steps"]
    return new


def first_difference(old: Dict[str, Any], new: Dict[str, Any]) -> Optional[str]:
    """``name was this, now that`` for the first option that may not differ, or None."""
    for name, a, b in differences(old, new):
        if name not in FREE:
            return f"{name} was {a}, now {b}"
    return None


def differences(
    old: Dict[str, Any], new: Dict[str, Any], prefix: str = ""
) -> Iterator[Tuple[str, Any, Any]]:
    """The options that differ: their names, and their values in one and in the other."""
    for name in sorted(old.keys() | new.keys()):
        a, b = old.get(name), new.get(name)
        if isinstance(a, dict) and isinstance(b, dict):
            yield from differences(a, b, f"{prefix}{name}.")
        elif a != b:
            yield prefix + name, a, b

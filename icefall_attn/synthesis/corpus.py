"""Writing a synthetic corpus."""

import json
import logging
import multiprocessing
import os
import shutil
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Dict, List, Optional, Sequence

import soundfile
import torch

from icefall_attn.data.features import SAMPLE_RATE
from icefall_attn.errors import UserError
from icefall_attn.progress import progress_bar
from icefall_attn.synthesis.delivery import PARTS, Utterance
from icefall_attn.synthesis.espeak import Synthesizer
from icefall_attn.synthesis.rendering import render

# The plan of a corpus: each utterance's words, voice and noise. It tells whether a corpus is this one.
PLAN = "utterances.jsonl"

# Espeak's state runs on from one utterance to the next, so that each block has a process to itself:
# then it does not matter how many run side by side.
BLOCK = 50


def at_least_one(**options: int) -> None:
    """Raises `UserError` for an option of a program that is 0 or less."""
    for name, value in options.items():
        if value < 1:
            raise UserError(f"--{name} is {value}; give at least 1")


def synthesize_corpus(
    directory: Path,
    utterances: Sequence[Utterance],
    nj: int,
    overwrite: bool = False,
    texts: Optional[Dict[str, str]] = None,
) -> None:
    """Writes the corpus beside ``directory`` and moves it there when it is whole.

    A corpus that is there already, of the same utterances, is kept unless ``overwrite``.

    Args:
      nj: number of processes; it does not change the samples.
      texts: more files of the corpus, by their path in it.

    Raises:
      UserError: if there is a directory that holds something else, or espeak does not work.
    """
    plan = "".join(json.dumps(asdict(u), ensure_ascii=False) + "\n" for u in utterances)
    texts = {**(texts or {}), PLAN: plan}
    if not overwrite and _is_finished(directory, utterances, texts):
        logging.info("%s is there, kept", directory)
        return
    if directory.exists() and not (directory / PLAN).is_file():
        raise UserError(f"{directory} is there but no synthetic corpus; move it away")

    temporary = directory.with_name(f".{directory.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    for folder in {(temporary / p).parent for p in [*texts, *_paths(utterances)]}:
        folder.mkdir(parents=True, exist_ok=True)
    _synthesize_blocks(temporary, utterances, nj)
    for path, text in texts.items():
        (temporary / path).write_text(text, encoding="utf-8")
    shutil.rmtree(directory, ignore_errors=True)
    os.replace(temporary, directory)
    for part in PARTS:
        members = [u for u in utterances if u.part == part]
        voices = {u.voice for u in members}
        logging.info("%s: %d utterances by %d voices", part, len(members), len(voices))


def _paths(utterances: Sequence[Utterance]) -> List[str]:
    return [u.path for u in utterances]


def _is_finished(
    directory: Path, utterances: Sequence[Utterance], texts: Dict[str, str]
) -> bool:
    try:
        found = {p: (directory / p).read_text(encoding="utf-8") for p in texts}
    except (OSError, ValueError):
        return False
    return found == texts and all(
        (directory / path).is_file() for path in _paths(utterances)
    )


def _synthesize_blocks(
    directory: Path, utterances: Sequence[Utterance], nj: int
) -> None:
    blocks = [utterances[i : i + BLOCK] for i in range(0, len(utterances), BLOCK)]
    # Forked: a new process for each block would spend more time on importing than on speaking.
    # Nothing has been computed in this one, so that no thread is cut off.
    context = multiprocessing.get_context("fork")
    work = partial(_synthesize_block, directory)
    with context.Pool(min(nj, len(blocks)), maxtasksperchild=1) as pool:
        done = pool.imap_unordered(work, blocks, chunksize=1)
        for _ in progress_bar(done, total=len(blocks), desc="speaking"):
            pass


def _synthesize_block(directory: Path, utterances: Sequence[Utterance]) -> None:
    torch.set_num_threads(1)
    synthesizer = Synthesizer()
    for utterance in utterances:
        samples = render(synthesizer, utterance)
        path = directory / utterance.path
        soundfile.write(path, samples, SAMPLE_RATE, subtype="PCM_16")

#!/usr/bin/env python3
"""Synthesises the digits corpus: connected English digits by many voices, in noise.

    synthesize_digits.py --output-dir data/corpus --nj 2

writes `PART/UTTERANCE.wav` (16 kHz, 16 bit), `utterances.jsonl` (text, voice, accent, noise, ... of
each) and `corpus.json` (sizes, seed and the voices of each part; dev and test voices are not heard
in training). The same options give the same samples, whatever `--nj`. A corpus that is there
already, made with the same options, is kept unless there is `--overwrite`.
"""

import argparse
import json
import logging
import multiprocessing
import os
import shutil
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import soundfile
import torch

from espeak import Synthesizer
from icefall_attn.data.audio import resample
from icefall_attn.data.features import SAMPLE_RATE
from icefall_attn.errors import UserError, run_main
from icefall_attn.progress import progress_bar
from plan import VOICES, Utterance, plan_part

PARTS = ("train", "dev", "test")

# Espeak's state runs on from one utterance to the next, so that each block has a process to itself:
# then it does not matter how many run side by side.
BLOCK = 50


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--output-dir", type=Path, required=True, metavar="DIR", help="of the corpus"
    )
    parser.add_argument(
        "--nj", type=int, default=min(8, os.cpu_count() or 1), help="processes"
    )
    for part, size in zip(PARTS, (2000, 104, 240)):
        parser.add_argument(
            f"--{part}", type=int, default=size, metavar="N", help="utterances"
        )
    parser.add_argument("--seed", type=int, default=0, help="of all that is drawn")
    parser.add_argument("--overwrite", action="store_true", help="keep no old corpus")
    args = parser.parse_args()
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    sizes = {part: getattr(args, part) for part in PARTS}
    for name, value in {**sizes, "nj": args.nj}.items():
        if value < 1:
            raise UserError(f"--{name} is {value}; give at least 1")
    synthesize_corpus(args.output_dir, sizes, args.seed, args.nj, args.overwrite)


def synthesize_corpus(
    directory: Path, sizes: Dict[str, int], seed: int, nj: int, overwrite: bool = False
) -> None:
    """Writes the corpus beside ``directory`` and moves it there when it is whole."""
    about = {"sizes": sizes, "seed": seed, "voices": VOICES}
    utterances = [u for part in PARTS for u in plan_part(part, sizes[part], seed)]
    if not overwrite and is_finished(directory, about, utterances):
        logging.info("%s is there, kept", directory)
        return
    if directory.exists() and not (directory / "corpus.json").is_file():
        raise UserError(f"{directory} is there but no digits corpus; move it away")

    temporary = directory.with_name(f".{directory.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    for part in PARTS:
        (temporary / part).mkdir(parents=True)
    _synthesize_blocks(temporary, utterances, nj)
    with open(temporary / "utterances.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps(asdict(u)) + "\n" for u in utterances)
    (temporary / "corpus.json").write_text(json.dumps(about, indent=1) + "\n")
    shutil.rmtree(directory, ignore_errors=True)
    os.replace(temporary, directory)
    for part in PARTS:
        logging.info(
            "%s: %d utterances by %d voices", part, sizes[part], len(VOICES[part])
        )


def is_finished(
    directory: Path, about: Dict[str, Any], utterances: List[Utterance]
) -> bool:
    """Whether ``directory`` holds this corpus."""
    try:
        found = json.loads((directory / "corpus.json").read_text())
    except (OSError, ValueError):
        return False
    return found == about and all(wav_path(directory, u).is_file() for u in utterances)


def wav_path(directory: Path, utterance: Utterance) -> Path:
    return directory / utterance.part / f"{utterance.id}.wav"


def _synthesize_blocks(directory: Path, utterances: List[Utterance], nj: int) -> None:
    blocks = [utterances[i : i + BLOCK] for i in range(0, len(utterances), BLOCK)]
    # Forked: a new process for each block would spend more time on importing than on speaking.
    # Nothing has been computed in this one, so that no thread is cut off.
    context = multiprocessing.get_context("fork")
    work = partial(_synthesize_block, directory)
    with context.Pool(min(nj, len(blocks)), maxtasksperchild=1) as pool:
        done = pool.imap_unordered(work, blocks, chunksize=1)
        for _ in progress_bar(done, total=len(blocks), desc="speaking"):
            pass


def _synthesize_block(directory: Path, utterances: List[Utterance]) -> None:
    torch.set_num_threads(1)
    synthesizer = Synthesizer()
    for utterance in utterances:
        samples = render(synthesizer, utterance)
        path = wav_path(directory, utterance)
        soundfile.write(path, samples, SAMPLE_RATE, subtype="PCM_16")


def render(synthesizer: Synthesizer, utterance: Utterance) -> np.ndarray:
    """(samples,) float32 in [-1, 1] at 16 kHz: speech between silences, in noise."""
    speech = synthesizer.speak(
        utterance.spoken,
        utterance.accent,
        utterance.voice,
        utterance.words_per_minute,
        utterance.pitch,
        utterance.pitch_range,
        utterance.seed,
    )
    # a rate that has a large factor in common with the other one: cheap to resample
    rate = 250 * round(synthesizer.sample_rate * utterance.tempo / 250)
    if utterance.tempo == 1.0:
        rate = synthesizer.sample_rate
    speech = resample(torch.from_numpy(speech), rate, SAMPLE_RATE)
    speech = speech.numpy() / np.sqrt(np.mean(np.square(speech.numpy())))
    silences = (utterance.leading_silence, utterance.trailing_silence)
    signal = np.pad(speech, [round(s * SAMPLE_RATE) for s in silences])
    noise = make_noise(
        utterance.noise, len(signal), np.random.default_rng(utterance.seed)
    )
    signal = signal + noise * 10 ** (-utterance.snr / 20)
    signal = signal * 10 ** (utterance.level / 20)
    # The peaks of a loud utterance are held below full scale.
    return (signal * min(1.0, 0.99 / np.abs(signal).max())).astype(np.float32)


def make_noise(kind: str, length: int, rng: np.random.Generator) -> np.ndarray:
    """(length,) noise of mean power 1; `babble` has speech's spectrum and syllables."""
    size = 1 << length.bit_length()  # transforms of other sizes can be slow
    frequencies = np.fft.rfftfreq(size, 1 / SAMPLE_RATE)
    slope = {"white": 0.0, "pink": 0.5, "brown": 1.0, "babble": 0.8}[kind]
    shape = np.maximum(frequencies, 50.0) ** -slope
    if kind == "babble":
        shape = np.where(frequencies < 100, 0.0, shape)
    noise = np.fft.irfft(np.fft.rfft(rng.standard_normal(size)) * shape)[:length]
    if kind == "babble":
        time = np.arange(length) / SAMPLE_RATE
        rates, phases = rng.uniform(2, 6, 4), rng.uniform(0, 2 * np.pi, 4)
        noise *= 1.2 + np.sin(2 * np.pi * np.outer(time, rates) + phases).mean(axis=1)
    return noise / np.sqrt(np.mean(np.square(noise)))


if __name__ == "__main__":
    run_main(main)

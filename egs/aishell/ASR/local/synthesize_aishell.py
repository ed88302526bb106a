#!/usr/bin/env python3
"""Synthesises a small corpus in the layout of AISHELL-1: Mandarin sentences by many voices, in noise.

    synthesize_aishell.py --output-dir download --nj 2

writes `data_aishell/wav/PART/SPEAKER/UTTERANCE.wav` (16 kHz, 16 bit),
`data_aishell/transcript/aishell_transcript_v0.8.txt` and `resource_aishell/lexicon.txt` as they are
in AISHELL-1's archives, and `utterances.jsonl` (voice, noise, ... of each). Voices and sentences of
dev and test are not in training. The same options give the same samples, whatever `--nj`. A corpus
that is there already, made with the same options, is kept unless there is `--overwrite`.
"""

import random
from pathlib import Path
from typing import Dict, List, NamedTuple, Set

from icefall_attn.program import run_program
from icefall_attn.synthesis.corpus import at_least_one, synthesize_corpus
from icefall_attn.synthesis.delivery import (
    VOICES,
    Utterance,
    draw_delivery,
    draw_tempo,
    spread,
)
from sentences import LEXICON, Sentences

TRANSCRIPT = "data_aishell/transcript/aishell_transcript_v0.8.txt"

# AISHELL-1's numbers: of the first speaker of each part, and of a speaker's first utterance.
FIRST_SPEAKER = {"train": 2, "dev": 724, "test": 764}
FIRST_UTTERANCE = 121

# What espeak takes for words in a minute: four to eight syllables in a second.
SPEED = (180, 300)

# Each voice is as many speakers of the training set, whose throats differ.
THROATS = 4


class Speaker(NamedTuple):
    """``id`` as in AISHELL-1, such as S0002; for the others see `Utterance`."""

    id: str
    voice: str
    tempo: float


class AishellUtterance(Utterance):
    """Its id, such as BAC009S0002W0122, names the speaker."""

    @property
    def speaker(self) -> str:
        return self.id[6:11]

    @property
    def path(self) -> str:
        return f"data_aishell/wav/{self.part}/{self.speaker}/{self.id}.wav"


def synthesize_aishell(
    output_dir: Path,
    train: int = 2000,
    dev: int = 104,
    test: int = 240,
    seed: int = 0,
    nj: int = 4,
    overwrite: bool = False,
) -> None:
    """Writes the corpus.

    Args:
      output_dir: of the corpus.
      train: utterances for training.
      dev: utterances of the dev set.
      test: utterances of the test set.
      seed: of all that is drawn.
      nj: processes.
      overwrite: keep no old corpus.
    """
    at_least_one(train=train, dev=dev, test=test, nj=nj)
    utterances = plan_corpus(dict(train=train, dev=dev, test=test), seed)
    transcript = "".join(f"{u.id} {u.text}\n" for u in utterances)
    texts = {TRANSCRIPT: transcript, "resource_aishell/lexicon.txt": LEXICON}
    synthesize_corpus(output_dir, utterances, nj, overwrite, texts)


def plan_corpus(sizes: Dict[str, int], seed: int) -> List[AishellUtterance]:
    """The utterances of all parts, ``sizes[part]`` each, by id."""
    taken: Set[str] = set()
    # Training comes last: what is drawn for it, however much, leaves the others as they are.
    planned = [_plan_part(p, sizes[p], seed, taken) for p in ("test", "dev", "train")]
    return sorted((u for part in planned for u in part), key=lambda u: u.id)


def _plan_part(
    part: str, size: int, seed: int, taken: Set[str]
) -> List[AishellUtterance]:
    """Utterances whose texts are none of those ``taken``, to which those of dev and test are added."""
    rng = random.Random(f"{seed} {part}")
    everyone = _speakers(part, rng)
    speakers = spread(everyone, size, rng)
    texts = _draw_texts(part, size, rng, taken)
    return [
        AishellUtterance(
            id=f"BAC009{speaker.id}W{FIRST_UTTERANCE + index // len(everyone):04d}",
            part=part,
            text=text,
            spoken=text,
            voice=speaker.voice,
            accent="cmn",
            tempo=speaker.tempo,
            **draw_delivery(rng, SPEED),
        )
        for index, (speaker, text) in enumerate(zip(speakers, texts))
    ]


def _draw_texts(part: str, size: int, rng: random.Random, taken: Set[str]) -> List[str]:
    """Sentences; for training, every other text is one to five words without a sense.

    These teach the sounds: sentences so regular can be guessed from a few of them.
    """
    sentences = Sentences(rng)
    texts: List[str] = []
    for index, count in enumerate(spread(range(1, 6), size, rng)):
        words = part == "train" and index % 2 == 1
        while True:
            text = sentences.draw_words(count) if words else sentences.draw()
            if text not in taken:
                break
        texts.append(text)
        if part != "train":
            taken.add(text)
    return texts


def _speakers(part: str, rng: random.Random) -> List[Speaker]:
    voices = [
        (voice, draw_tempo(rng) if again else 1.0)
        for again in range(THROATS if part == "train" else 1)
        for voice in VOICES[part]
    ]
    return [
        Speaker(f"S{FIRST_SPEAKER[part] + index:04d}", voice, tempo)
        for index, (voice, tempo) in enumerate(voices)
    ]


if __name__ == "__main__":
    run_program(synthesize_aishell, __doc__)

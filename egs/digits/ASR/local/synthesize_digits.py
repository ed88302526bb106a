#!/usr/bin/env python3
"""Synthesises the digits corpus: connected English digits by many voices, in noise.

    synthesize_digits.py --output-dir data/corpus --nj 2

writes `PART/UTTERANCE.wav` (16 kHz, 16 bit) and `utterances.jsonl` (text, voice, accent, noise, ...
of each; dev and test voices are not heard in training). The same options give the same samples,
whatever `--nj`. A corpus that is there already, made with the same options, is kept unless there is
`--overwrite`.
"""

from pathlib import Path

from icefall_attn.program import run_program
from icefall_attn.synthesis.corpus import at_least_one, synthesize_corpus
from plan import plan_corpus


def synthesize_digits(
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
    synthesize_corpus(output_dir, utterances, nj, overwrite)


if __name__ == "__main__":
    run_program(synthesize_digits, __doc__)

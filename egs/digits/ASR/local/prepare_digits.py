#!/usr/bin/env python3
"""Manifests of the synthesised digits corpus.

    prepare_digits.py --corpus-dir data/corpus --output-dir data/manifests

writes `digits_{recordings,supervisions}_{train,dev,test}.jsonl.gz`.
"""

import argparse
import json
import logging
from pathlib import Path
from typing import Any, Dict, Tuple

from lhotse import Recording, SupervisionSegment

from icefall_attn.data.manifests import write_part
from icefall_attn.errors import UserError, run_main


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--corpus-dir",
        type=Path,
        required=True,
        metavar="DIR",
        help="of synthesize_digits.py",
    )
    parser.add_argument(
        "--output-dir", type=Path, required=True, metavar="DIR", help="of the manifests"
    )
    args = parser.parse_args()
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    prepare_digits(args.corpus_dir.resolve(), args.output_dir)


def prepare_digits(corpus_dir: Path, output_dir: Path) -> None:
    """Writes the manifests of the three parts.

    Raises:
      UserError: if the corpus is missing or damaged, or a voice of dev or test is in training.
    """
    lines = corpus_dir / "utterances.jsonl"
    if not lines.is_file():
        raise UserError(f"{lines} is missing; run local/synthesize_digits.py first")
    try:
        utterances = [json.loads(line) for line in lines.read_text().splitlines()]
    except ValueError as error:
        raise UserError(f"{lines} is damaged: {error}")
    parts = {
        part: [u for u in utterances if u["part"] == part]
        for part in ("train", "dev", "test")
    }
    heard = {u["voice"] for u in parts["train"]}
    for part in ("dev", "test"):
        known = sorted(heard & {u["voice"] for u in parts[part]})
        if known:
            raise UserError(f"{lines}: the {part} voice {known[0]!r} is in training")
    for part, members in parts.items():
        if not members:
            raise UserError(f"{lines} has no utterance of {part!r}")
        recordings, supervisions = zip(*(_convert(u, corpus_dir) for u in members))
        write_part(output_dir, "digits", part, recordings, supervisions)
        words = sum(len(u["text"].split()) for u in members)
        voices = len({u["voice"] for u in members})
        logging.info(
            "%s: %d utterances, %d words, %d voices", part, len(members), words, voices
        )


def _convert(
    utterance: Dict[str, Any], corpus_dir: Path
) -> Tuple[Recording, SupervisionSegment]:
    path = corpus_dir / utterance["part"] / f"{utterance['id']}.wav"
    if not path.is_file():
        raise UserError(f"{path} is missing; run local/synthesize_digits.py again")
    try:
        recording = Recording.from_file(path, recording_id=utterance["id"])
    except Exception as error:  # whatever lhotse makes of libsndfile's complaint
        raise UserError(f"{path} cannot be read as audio: {error}")
    supervision = SupervisionSegment(
        id=utterance["id"],
        recording_id=utterance["id"],
        start=0.0,
        duration=recording.duration,
        text=utterance["text"],
        language="English",
        speaker=utterance["voice"],
        custom={key: utterance[key] for key in ("accent", "noise", "snr")},
    )
    return recording, supervision


if __name__ == "__main__":
    run_main(main)

"""What the digits corpus consists of: who says which digits."""

import random
from dataclasses import replace
from typing import Dict, List

from icefall_attn.synthesis.delivery import (
    PARTS,
    VOICES,
    Utterance,
    draw_delivery,
    draw_tempo,
    spread,
)

DIGITS = "ZERO ONE TWO THREE FOUR FIVE SIX SEVEN EIGHT NINE".split()
LONGEST = 8

ACCENTS = (
    "en",
    "en-us",
    "en-us-nyc",
    "en-029",
    "en-gb-scotland",
    "en-gb-x-rp",
    "en-gb-x-gbclan",
    "en-gb-x-gbcwmd",
)


def plan_corpus(sizes: Dict[str, int], seed: int) -> List[Utterance]:
    """The utterances of all parts, ``sizes[part]`` each."""
    return [u for part in PARTS for u in plan_part(part, sizes[part], seed)]


def plan_part(part: str, size: int, seed: int) -> List[Utterance]:
    """``size`` utterances whose lengths (1 to 8 digits), voices and accents are evenly spread."""
    rng = random.Random(f"{seed} {part}")
    lengths = spread(range(1, LONGEST + 1), size, rng)
    voices = spread(VOICES[part], size, rng)
    accents = spread(ACCENTS, size, rng)
    return [
        _draw(part, index, length, voice, accent, rng)
        for index, (length, voice, accent) in enumerate(zip(lengths, voices, accents))
    ]


def _draw(
    part: str, index: int, length: int, voice: str, accent: str, rng: random.Random
) -> Utterance:
    words = [rng.choice(DIGITS) for _ in range(length)]
    # A comma now and then: a short pause, another melody.
    spoken = "".join(
        (", " if rng.random() < 0.15 else " ") + word.lower() for word in words
    ).strip(", ")
    utterance = Utterance(
        id=f"{part}-{index:05d}-{voice}",
        part=part,
        text=" ".join(words),
        spoken=spoken,
        voice=voice,
        accent=accent,
        tempo=1.0,
        **draw_delivery(rng),
    )
    if part == "train" and index % 2 == 1:
        return replace(utterance, tempo=draw_tempo(rng))
    return utterance

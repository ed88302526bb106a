"""What the digits corpus consists of: who says which digits, how, and in what noise."""

import random
from dataclasses import dataclass
from typing import Dict, List

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

# A voice is a variant of espeak's: throat and pitch of one person, with any accent. Variants that
# are copies of each other but for a few numbers stand in the same part; robots, whisperers and
# demons stand in none.
VOICES: Dict[str, List[str]] = {
    "train": (
        "f1 f4 f5 m1 m2 m4 m6 m8 Alex Andrea Annie Denis Gene Gene2 Lee Mario Michael Mike Nguyen"
        " Reed adam announcer aunty benjamin caleb david ed edward edward2 gustave ian john klatt3"
        " klatt4 klatt5 klatt6 mike2 norbert pablo pedro rob robert shelby steph steph3 victor zac"
    ).split(),
    "dev": "f3 m5 belinda boris grandma marcelo sandro travis".split(),
    "test": "f2 m3 m7 Alicia Andy Henrique Hugo grandpa linda max michel quincy".split(),
}

NOISES = ("white", "pink", "brown", "babble")


@dataclass(frozen=True)
class Utterance:
    """One line of the corpus's metadata. Silences in seconds, levels in dB.

    ``tempo`` is that at which the voice is played, pitch and formants with it: it makes many throats of one.
    """

    id: str
    part: str
    text: str
    spoken: str
    voice: str
    accent: str
    words_per_minute: int
    pitch: int
    pitch_range: int
    leading_silence: float
    trailing_silence: float
    noise: str
    snr: float
    level: float
    seed: int
    tempo: float


def plan_part(part: str, size: int, seed: int) -> List[Utterance]:
    """``size`` utterances whose lengths (1 to 8 digits), voices and accents are evenly spread."""
    rng = random.Random(f"{seed} {part}")
    lengths = _spread(range(1, LONGEST + 1), size, rng)
    voices = _spread(VOICES[part], size, rng)
    accents = _spread(ACCENTS, size, rng)
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
    utterance = dict(
        id=f"{part}-{index:05d}-{voice}",
        part=part,
        text=" ".join(words),
        spoken=spoken,
        voice=voice,
        accent=accent,
        words_per_minute=rng.randint(120, 220),
        pitch=rng.randint(30, 70),
        pitch_range=rng.randint(20, 80),
        leading_silence=round(rng.uniform(0.05, 0.4), 3),
        trailing_silence=round(rng.uniform(0.05, 0.4), 3),
        noise=rng.choice(NOISES),
        snr=round(rng.uniform(10, 30), 1),
        level=round(rng.uniform(-35, -15), 1),
        seed=rng.randrange(2**31),
        tempo=1.0,
    )
    if part == "train" and index % 2 == 1:
        utterance["tempo"] = round(rng.uniform(0.85, 1.2), 2)
    return Utterance(**utterance)


def _spread(values, size: int, rng: random.Random) -> list:
    values = list(values)
    rounds = [rng.sample(values, len(values)) for _ in range(-(-size // len(values)))]
    return [value for one in rounds for value in one][:size]

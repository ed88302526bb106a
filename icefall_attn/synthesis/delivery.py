"""Who says an utterance of a synthetic corpus, how, and in what noise."""

import random
from dataclasses import dataclass
from typing import Any, Dict, List, Tuple

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
PARTS = tuple(VOICES)

NOISES = ("white", "pink", "brown", "babble")


@dataclass(frozen=True)
class Utterance:
    """One line of a corpus's metadata. Silences in seconds, levels in dB.

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

    @property
    def path(self) -> str:
        """Of the samples, from the corpus's directory."""
        return f"{self.part}/{self.id}.wav"


def draw_delivery(
    rng: random.Random, words_per_minute: Tuple[int, int] = (120, 220)
) -> Dict[str, Any]:
    """Speed, melody, silences and noise: what is drawn for each `Utterance` anew.

    Args:
      rng: gives the numbers.
      words_per_minute: slowest and fastest speech, as espeak counts words.
    """
    return dict(
        words_per_minute=rng.randint(*words_per_minute),
        pitch=rng.randint(30, 70),
        pitch_range=rng.randint(20, 80),
        leading_silence=round(rng.uniform(0.05, 0.4), 3),
        trailing_silence=round(rng.uniform(0.05, 0.4), 3),
        noise=rng.choice(NOISES),
        snr=round(rng.uniform(10, 30), 1),
        level=round(rng.uniform(-35, -15), 1),
        seed=rng.randrange(2**31),
    )


def draw_tempo(rng: random.Random) -> float:
    """That of one more throat for training."""
    return round(rng.uniform(0.85, 1.2), 2)


def spread(values, size: int, rng: random.Random) -> list:
    """``size`` of the values: all of them in a random order, again and again."""
    values = list(values)
    rounds = [rng.sample(values, len(values)) for _ in range(-(-size // len(values)))]
    return [value for one in rounds for value in one][:size]

"""Voices that differ, and Mandarin that is read as it is written."""

import pytest
from speaking import speak

from icefall_attn.synthesis.delivery import VOICES

pytest.importorskip("espeakng_loader")


def test_no_voice_is_in_two_parts():
    everyone = [voice for part in VOICES.values() for voice in part]
    assert len(everyone) == len(set(everyone))


@pytest.mark.parametrize(
    "accent, text", [("en-us", "one two three"), ("cmn", "\u4f60 \u597d")]
)
def test_every_voice_sounds_different(accent, text):
    everyone = [voice for part in VOICES.values() for voice in part]
    sounds = speak((accent, voice, text) for voice in everyone)
    assert len(sounds) == len(everyone) == len(set(sounds))


def test_hanzi_are_read_as_pinyin_is():
    """By reading and tone, and a word's own reading where a character has two."""
    pairs = {
        "\u5988": "ma1",  # mother
        "\u9a6c": "ma3",  # horse
        "\u4e94": "wu3",  # five
        "\u94f6\u884c": "yin2hang2",  # bank
        "\u884c": "xing2",  # to go
    }
    hanzi = speak(("cmn", "m1", word) for word in pairs)
    pinyin = speak(("cmn-latn-pinyin", "m1", word) for word in pairs.values())
    assert hanzi == pinyin
    assert len(set(hanzi)) == len(pairs)

"""The speech synthesiser espeak-ng, as the pip package `espeakng_loader` brings it."""

import ctypes
from pathlib import Path
from typing import List

import numpy as np

from icefall_attn.errors import UserError

# From espeak-ng's speak_lib.h.
_OUTPUT_SYNCHRONOUS = 2
_INITIALIZE_DONT_EXIT = 0x8000
_CHARS_UTF8 = 1
_RATE, _PITCH, _RANGE = 1, 3, 4

_Callback = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p
)


class Synthesizer:
    """Speaks texts in the languages of espeak.

    Espeak is one for a whole process and its state runs on from one text to the next: the same
    texts in the same order, from a new process, give the same samples.
    """

    def __init__(self) -> None:
        try:
            import espeakng_loader

            self._data = Path(espeakng_loader.get_data_path())
            self._library = ctypes.CDLL(espeakng_loader.get_library_path())
            # Without it the breath of a voice is drawn by the clock.
            self._set_seed = self._library.espeak_ng_SetRandSeed
        except ImportError:
            raise UserError(
                "the synthesiser is missing; install it with: pip install espeakng-loader"
            )
        except (OSError, RuntimeError, AttributeError) as error:
            raise UserError(
                f"the synthesiser of the package espeakng-loader does not work here: {error}"
            )
        rate = self._library.espeak_Initialize(
            _OUTPUT_SYNCHRONOUS, 0, str(self._data).encode(), _INITIALIZE_DONT_EXIT
        )
        if rate <= 0:
            raise UserError(f"espeak-ng does not start with its data in {self._data}")
        self.sample_rate: int = rate
        self._chunks: List[np.ndarray] = []
        # Kept alive for as long as espeak may call it.
        self._callback = _Callback(self._receive)
        self._library.espeak_SetSynthCallback(self._callback)

    def speak(
        self,
        text: str,
        accent: str,
        variant: str,
        words_per_minute: int,
        pitch: int,
        pitch_range: int,
        seed: int,
    ) -> np.ndarray:
        """Returns (samples,) float32 in [-1, 1] at `sample_rate`.

        Args:
          text: words of the accent's language.
          accent: espeak's language, such as `en-us` or `cmn`.
          variant: who speaks, a file of espeak's `voices/!v`, such as `f3`.
          words_per_minute: 80 to 450.
          pitch, pitch_range: 0 to 99, 50 is the variant's own.
          seed: of the noise in the voice.
        """
        # An unknown variant would silently be spoken by the accent's own voice.
        if not (self._data / "voices" / "!v" / variant).is_file():
            raise UserError(f"espeak-ng has no voice variant {variant!r}")
        if self._library.espeak_SetVoiceByName(f"{accent}+{variant}".encode()) != 0:
            raise UserError(f"espeak-ng has no accent {accent!r}")
        for parameter, value in (
            (_RATE, words_per_minute),
            (_PITCH, pitch),
            (_RANGE, pitch_range),
        ):
            self._library.espeak_SetParameter(parameter, value, 0)
        self._set_seed(ctypes.c_long(seed))
        self._chunks.clear()
        data = text.encode() + b"\0"
        status = self._library.espeak_Synth(
            data, ctypes.c_size_t(len(data)), 0, 1, 0, _CHARS_UTF8, None, None
        )
        if status != 0 or not self._chunks:
            raise UserError(f"espeak-ng says nothing to {text!r} ({accent}+{variant})")
        return np.concatenate(self._chunks).astype(np.float32) / 32768

    def _receive(self, samples, count: int, events) -> int:
        if samples and count > 0:
            self._chunks.append(np.ctypeslib.as_array(samples, (count,)).copy())
        return 0

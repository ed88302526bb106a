"""Where a segment of a stream ends: by the blanks after its last token."""

from dataclasses import dataclass

from icefall_attn.decoding.results import FRAME_SECONDS
from icefall_attn.errors import UserError


@dataclass
class EndpointConfig:
    """Rules of which any one ends a segment, after those of Kaldi's online decoders; 0 leaves one out.

    Attributes:
      silence: seconds without a token, when there has been none yet.
      pause: seconds without a token after the last one.
      longest: seconds of a segment.
    """

    silence: float = 2.4
    pause: float = 1.2
    longest: float = 20.0

    def validate(self) -> None:
        """Raises `UserError` for what is no time."""
        for name in ("silence", "pause", "longest"):
            if not getattr(self, name) >= 0:
                raise UserError(
                    f"endpoint.{name} must be 0 or more seconds, not {getattr(self, name)}"
                )

    def reached(self, frames: int, last: int) -> bool:
        """Whether a segment ends.

        Args:
          frames: encoder frames of the segment so far.
          last: the frame of its last token, -1 if there is none.
        """
        quiet = self.pause if last >= 0 else self.silence
        return _over(frames - last - 1, quiet) or _over(frames, self.longest)


def _over(frames: int, seconds: float) -> bool:
    return seconds > 0 and frames * FRAME_SECONDS >= seconds - 1e-9

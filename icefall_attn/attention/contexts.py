"""Which keys a query may see: the contexts, by name, and their options in frames of 40 ms.

All but two are a `Window`. ``csa`` works on chunks with copies of their own of the frames they
overlap in (`chunked`), ``dcn`` on two streams (`dual`).
"""

from dataclasses import dataclass, field
from typing import Any, List, NamedTuple, Optional

import torch
from torch import Tensor

UNLIMITED = 2**30  # frames, a year


class Window(NamedTuple):
    """The keys of the query at time i, in the chunk ``[s, s + chunk)`` of times that holds i.

    They have times from ``s - back`` to ``s + chunk - 1 + ahead``.
    """

    chunk: int = 1
    ahead: int = UNLIMITED
    back: int = UNLIMITED


FULL = Window()
CAUSAL = Window(ahead=0)


def unlimited(frames: int) -> bool:
    """Whether a window has no end on that side."""
    return frames >= 2**30


class AttentionContext(NamedTuple):
    """What all layers of one pass over a batch share.

    Attributes:
      valid: ``(B, T')`` bool, True on valid frames.
      bias: added to scores, see `masking`; None hides nothing.
      shared: what the mechanism's `shared` module made, for instance a table of positions, and
        what layers left there for those after them.
      window: the keys of a query by time, which ``bias`` hides the others of.
    """

    valid: Tensor
    bias: Optional[Tensor]
    shared: List[Tensor]
    window: Window = FULL


def sees(window: Window, query: Tensor, key: Tensor) -> Tensor:
    """Whether queries at times ``query`` see keys at times ``key``; the two broadcast."""
    start = query - query % window.chunk
    after = key <= start + (window.chunk - 1 + window.ahead)
    return after & (key >= start - window.back)


def ready(window: Window, arrived: Tensor) -> Tensor:
    """How many queries have all their keys among the first ``arrived`` of a stream."""
    chunks = torch.div(arrived - window.ahead, window.chunk, rounding_mode="floor")
    return chunks.clamp(min=0) * window.chunk


def by_order(window: Window) -> bool:
    """Whether the keys of a query are all, or all up to some frames after it: the running sums of linear
    attention need no mask then."""
    return window.chunk == 1 and unlimited(window.back)


def look_back_window(look_back: int) -> int:
    """The option ``look_back`` as a number of frames."""
    return look_back if look_back > 0 else UNLIMITED


@dataclass
class Full:
    """The whole utterance."""

    def window(self) -> Window:
        """Where a query's keys are."""
        return FULL


@dataclass
class Causal:
    """No frame after the query's own.

    Attributes:
      look_back: frames before its own; 0 for all.
    """

    look_back: int = 0

    def __post_init__(self):
        at_least(0, "causal", self, "look_back")

    def window(self) -> Window:
        """Where a query's keys are."""
        return Window(ahead=0, back=look_back_window(self.look_back))


@dataclass
class Rsa:
    """Restricted self-attention: a few frames after the query's own, in every layer.

    Attributes:
      look_ahead: frames after its own; L layers look L times as far.
      look_back: frames before its own; 0 for all.
    """

    look_ahead: int = 1
    look_back: int = 0

    def __post_init__(self):
        at_least(0, "rsa", self, "look_ahead", "look_back")

    def window(self) -> Window:
        """Where a query's keys are."""
        return Window(ahead=self.look_ahead, back=look_back_window(self.look_back))


@dataclass
class Chunk:
    """The frames of the query's chunk and those before it.

    Attributes:
      chunk_size: frames of a chunk.
      left_chunks: chunks before its own; -1 for all.
      smallest: each training batch draws its chunk size from this one to ``chunk_size``; 0 always
        takes the latter.
    """

    chunk_size: int = 16
    left_chunks: int = -1
    smallest: int = 0

    def __post_init__(self):
        at_least(1, "chunk", self, "chunk_size")
        at_least(-1, "chunk", self, "left_chunks")
        if not 0 <= self.smallest <= self.chunk_size:
            raise ValueError(
                f"context.chunk.smallest must be from 0 to chunk_size={self.chunk_size}, "
                f"not {self.smallest}"
            )

    def window(self) -> Window:
        """Where a query's keys are."""
        back = self.left_chunks * self.chunk_size
        return Window(self.chunk_size, 0, back if back >= 0 else UNLIMITED)


@dataclass
class Csa:
    """Chunk self-attention: chunks of ``hop`` frames and copies of the ``overlap`` frames after them.

    The frames of a chunk see each other and the frames of the chunks before, but not their copies, which
    are there for their own chunk's sake alone.

    Attributes:
      hop: frames of a chunk.
      overlap: frames after it that it looks ahead to.
      look_back: frames before the chunk; 0 for all.
    """

    hop: int = 8
    overlap: int = 8
    look_back: int = 0

    def __post_init__(self):
        at_least(1, "csa", self, "hop")
        at_least(0, "csa", self, "overlap", "look_back")

    def window(self) -> Window:
        """Where a query's keys are, copies aside."""
        return Window(self.hop, self.overlap, look_back_window(self.look_back))


@dataclass
class Dcn:
    """Dual causal and non-causal self-attention (Moritz et al. 2021).

    Attributes:
      look_ahead: frames that the encoder looks ahead, whatever its depth.
      look_back: frames before the query's own; 0 for all.
      boundary: the causal query n takes the non-causal frames ``m < n - look_ahead`` (``strict``, the
        paper's words) or ``m <= n - look_ahead`` (``inclusive``, which leaks nothing either). A model is
        tied to one.
    """

    look_ahead: int = 6
    look_back: int = 0
    boundary: str = "strict"

    def __post_init__(self):
        at_least(0, "dcn", self, "look_ahead", "look_back")
        if self.boundary not in ("strict", "inclusive"):
            raise ValueError(
                "context.dcn.boundary must be 'strict' or 'inclusive', "
                f"not {self.boundary!r}"
            )

    def window(self) -> Window:
        """Where a non-causal query's keys are."""
        return Window(ahead=self.look_ahead, back=look_back_window(self.look_back))


CONTEXTS = ("full", "causal", "rsa", "chunk", "csa", "dcn")


@dataclass
class ContextConfig:
    """Which frames the self-attention of a frame sees.

    Attributes:
      kind: ``full`` (the whole utterance), ``causal``, ``rsa``, ``chunk``, ``csa`` or ``dcn``; all but the
        first can run as a stream.
      causal: options of ``causal``.
      rsa: options of ``rsa``.
      chunk: options of ``chunk``.
      csa: options of ``csa``.
      dcn: options of ``dcn``.
    """

    kind: str = "full"
    causal: Causal = field(default_factory=Causal)
    rsa: Rsa = field(default_factory=Rsa)
    chunk: Chunk = field(default_factory=Chunk)
    csa: Csa = field(default_factory=Csa)
    dcn: Dcn = field(default_factory=Dcn)

    def __post_init__(self):
        if self.kind not in CONTEXTS:
            raise ValueError(
                f"context.kind must be one of {', '.join(CONTEXTS)}, not {self.kind!r}"
            )

    @property
    def chosen(self) -> Any:
        """The options of ``kind``."""
        return Full() if self.kind == "full" else getattr(self, self.kind)


def at_least(bound: int, context: str, options: Any, *names: str) -> None:
    """Refuses options below ``bound``."""
    for name in names:
        if getattr(options, name) < bound:
            raise ValueError(
                f"context.{context}.{name} must be at least {bound}, not {getattr(options, name)}"
            )

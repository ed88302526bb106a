"""How long a stream's frames wait: the algorithmic latency of an encoder."""

from typing import NamedTuple

from icefall_attn.attention.contexts import unlimited
from icefall_attn.encoder.conformer import ConformerConfig

FRONT_END = (
    30.0  # ms: the subsampling sees three frames of 10 ms after the middle of its seven
)
FRAME = 40.0  # ms


class Latency(NamedTuple):
    """Milliseconds from the middle of a frame to the input that its output needs.

    The 25 ms window of the features and the time that computing takes come on top.

    Attributes:
      front_end: share of the subsampling, in the three others.
      least: of a chunk's last frame.
      mean: of all frames.
      most: of a chunk's first frame.
    """

    front_end: float
    least: float
    mean: float
    most: float


def latency(config: ConformerConfig) -> Latency:
    """Of an encoder; infinite if its context is the whole utterance.

    Look-ahead adds up over the layers of ``rsa`` only (DCN, Moritz et al. 2021, section 2).
    """
    hop = config.context.chosen.window().chunk
    waits = [wait(config, frame) for frame in range(hop)]
    return Latency(FRONT_END, min(waits), sum(waits) / hop, max(waits))


def wait(config: ConformerConfig, frame: int) -> float:
    """Milliseconds from the middle of one frame of an encoder to the input that its output needs."""
    limits = config.context.chosen.window()
    if unlimited(limits.ahead):
        return float("inf")
    layers = config.num_layers if config.context.kind == "rsa" else 1
    within = limits.chunk - 1 - frame % limits.chunk
    return FRONT_END + FRAME * (limits.ahead * layers + within)

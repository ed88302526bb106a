"""Streams of samples recognised as they come, many side by side, each in segments."""

from dataclasses import dataclass
from typing import Any, List, Optional, Sequence, Set, Tuple

import torch
from torch import Tensor

from icefall_attn.data.streaming import StreamingFbank
from icefall_attn.decoding.config import SearchConfig
from icefall_attn.decoding.endpoint import EndpointConfig
from icefall_attn.decoding.results import FRAME_SECONDS, Hypothesis, rank
from icefall_attn.decoding.streaming import ADVANCES, check_streamable
from icefall_attn.decoding.streams import start_streams
from icefall_attn.encoder.stream import select, stack_states
from icefall_attn.errors import UserError


@dataclass
class Segment:
    """What was said between two pauses.

    Args:
      text: of the best hypothesis.
      tokens: its token ids.
      times: seconds from the stream's begin at which each was emitted.
    """

    text: str
    tokens: List[int]
    times: List[float]


class OnlineStream:
    """One stream: samples in, segments out. Made by `StreamingRecognizer.open`.

    Attributes:
      segments: those that have ended.
      done: the stream was finished and all of it is recognised.
    """

    def __init__(self, recognizer: "StreamingRecognizer", features: str) -> None:
        self._recognizer = recognizer
        self._fbank = StreamingFbank(features)
        self._pending = torch.zeros(0, recognizer.model.config.encoder.feature_dim)
        self._finished = False
        self.segments: List[Segment] = []
        self.done = False
        self.group = Group([self], recognizer.model.init_stream(1))
        self.search = recognizer.start_search()
        self._begin = 0  # encoder frame at which the segment begins

    def accept(self, samples: Tensor) -> None:
        """Takes (n,) float32 samples in [-1, 1] of 16 kHz.

        Raises:
          UserError: some are not numbers.
        """
        if self._finished:
            raise ValueError("the stream was finished")
        if not torch.isfinite(samples).all():
            raise UserError("the stream holds samples that are not numbers")
        self._push(self._fbank.accept(samples))

    def finish(self) -> None:
        """Says that no more samples come."""
        if not self._finished:
            self._finished = True
            self._push(self._fbank.finish())

    @property
    def ready(self) -> bool:
        """Whether there is a piece to recognise."""
        if self._finished:
            return not self.done
        return len(self._pending) >= self._recognizer.piece

    @property
    def encoder_state(self) -> Any:
        """What the encoder keeps of the stream, as a batch of one."""
        return self.group.part({self})[1]

    @property
    def partial(self) -> Segment:
        """The segment that has not ended yet, as it looks now."""
        best = self._recognizer.best(self.search)
        return Segment(
            self._recognizer.tokenizer.decode(best.tokens),
            best.tokens,
            [round((self._begin + f) * FRAME_SECONDS, 2) for f in best.frames],
        )

    @property
    def text(self) -> str:
        """All that was recognised so far, the open segment included."""
        parts = [segment.text for segment in [*self.segments, self.partial]]
        return " ".join(part for part in parts if part)

    def _push(self, features: Tensor) -> None:
        self._pending = torch.cat((self._pending, features))

    def take(self) -> Tuple[Tensor, bool]:
        """The next piece (n, F), and whether it is the last."""
        piece = self._pending[: self._recognizer.piece]
        self._pending = self._pending[len(piece) :]
        return piece, self._finished and len(self._pending) == 0

    def end_segment(self) -> None:
        """Begins another segment; of the encoder's past nothing is forgotten."""
        ended = self.partial
        if ended.tokens:
            self.segments.append(ended)
        self._begin += self.search.frames
        self.search = self._recognizer.start_search()


class Group:
    """Streams whose encoder states lie in one batch, as their last step together left them.

    While the same streams step together nothing is copied from one batch to another.
    """

    def __init__(self, members: List[OnlineStream], state: Any) -> None:
        self.members, self.state = members, state
        for member in members:
            member.group = self

    def part(self, wanted: Set[OnlineStream]) -> Tuple[List[OnlineStream], Any]:
        """Those of the members that are wanted, with their state."""
        members = [member for member in self.members if member in wanted]
        if len(members) == len(self.members):
            return members, self.state
        rows = [row for row, member in enumerate(self.members) if member in wanted]
        return members, select(self.state, rows)

    def leave(self, leaving: Set[OnlineStream]) -> None:
        """Forgets some of the members, and what was kept of them."""
        self.members, self.state = self.part(set(self.members) - leaving)


class StreamingRecognizer:
    """Recognises streams of samples with a model that can stream.

        recognizer = StreamingRecognizer(model, tokenizer, SearchConfig())
        stream = recognizer.open()
        for samples in microphone:
            stream.accept(samples)
            recognizer.step([stream])
            print(stream.text)

    Args:
      model: a transducer in evaluation mode whose context can stream.
      tokenizer: has ``decode(ids) -> text``.
      config: the search; one of those in `ADVANCES`.
      endpoint: when segments end, which is looked at after each piece; None for never.
      piece: feature frames (10 ms) that are recognised at once.
      features: the model's kind of features.

    Raises:
      UserError: the model, the search or the features need whole utterances.
    """

    def __init__(
        self,
        model,
        tokenizer,
        config: SearchConfig,
        endpoint: Optional[EndpointConfig] = None,
        piece: int = 32,
        features: str = "fbank",
    ) -> None:
        check_streamable(config)
        self.model, self.tokenizer, self.config = model, tokenizer, config
        self.endpoint, self.piece, self.features = endpoint, piece, features
        self.device = next(model.parameters()).device
        self._advance = ADVANCES[config.method]
        self.open()  # refuses what cannot stream

    def open(self) -> OnlineStream:
        """A new stream."""
        return OnlineStream(self, self.features)

    @torch.no_grad()
    def step(self, streams: Sequence[OnlineStream]) -> List[OnlineStream]:
        """Recognises a piece of each of the streams that are ready, all together.

        Returns:
          Those streams, in any order; none when there is nothing to do.
        """
        streams = [stream for stream in streams if stream.ready]
        if not streams:
            return []
        wanted = set(streams)
        groups = list(dict.fromkeys(stream.group for stream in streams))
        parts = [group.part(wanted) for group in groups]
        streams = [stream for members, _ in parts for stream in members]
        pieces, last = zip(*(stream.take() for stream in streams))
        lengths = torch.tensor([len(piece) for piece in pieces])
        features = torch.nn.utils.rnn.pad_sequence(pieces, batch_first=True)
        out, ready, state = self.model.encode_step(
            features.to(self.device),
            lengths.to(self.device),
            stack_states([state for _, state in parts]),
            torch.tensor(last, device=self.device),
        )
        for group in groups:
            group.leave(wanted)
        Group(streams, state)
        searches = self._advance(
            self.model, [stream.search for stream in streams], out, ready, self.config
        )
        for stream, search, ends in zip(streams, searches, last):
            stream.search, stream.done = search, ends
            if stream.done or self._ends(stream):
                stream.end_segment()
        return streams

    def run(self, streams: Sequence[OnlineStream]) -> None:
        """Recognises all that has come."""
        while self.step(streams):
            pass

    def start_search(self):
        """A search that has read nothing."""
        return start_streams(self.model, 1, self.device)[0]

    def best(self, search) -> Hypothesis:
        """The best hypothesis of a search, as the end of a whole utterance would choose it."""
        return rank(search.scored(), self.config)[0]

    def _ends(self, stream: OnlineStream) -> bool:
        if self.endpoint is None:
            return False
        frames = self.best(stream.search).frames
        last = frames[-1] if frames else -1
        return self.endpoint.reached(stream.search.frames, last)

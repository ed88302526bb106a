#!/usr/bin/env python3
"""Trained streaming models side by side: errors, cost of a step, state, delay, streams on a core.

    cd egs/an4/ASR
    OMP_NUM_THREADS=1 ../../../tools/bench_streaming.py --reference exp-latency/offline/seed-42 \\
        --cuts data/fbank/an4_cuts_test.jsonl.gz exp-latency/{rsa,dcn}-190/seed-42

A Markdown table with a line for each model. The utterances go through features, encoder and greedy
search one after the other, ``--piece`` ms at a time, all models taking turns. The delay of a token is
that against the greedy search of ``--reference``, a model that hears whole utterances, on the
encoder's own clock; "shown" adds the frames that the encoder waits for. The last column is how many
endless streams take a step in less time than a piece lasts, nine times of ten.
"""

import argparse
import itertools
import statistics
import time
from typing import Dict, Iterator, List, Sequence, Tuple

from measuring import positive  # before torch

import torch
from torch import Tensor

from icefall_attn.data.audio import use_libsndfile
from icefall_attn.data.features import SAMPLE_RATE, compute_features
from icefall_attn.data.manifests import read_items
from icefall_attn.decoding import Hypothesis, SearchConfig, recognize
from icefall_attn.decoding.endpoint import EndpointConfig
from icefall_attn.decoding.online import OnlineStream, StreamingRecognizer
from icefall_attn.encoder.latency import FRAME, latency, wait
from icefall_attn.encoder.stream import state_bytes
from icefall_attn.errors import UserError, run_main
from icefall_attn.scoring import score
from icefall_attn.scoring.delay import Emission, emission_delays
from icefall_attn.training.allocator import keep_freed_memory
from icefall_attn.training.experiment import Experiment, load_experiment

WARM = 10  # seconds of each stream before its steps are timed
COLUMNS = [
    "model",
    "latency, ms",
    "WER, %",
    "step, ms a frame: median",
    "90 %",
    "RTF",
    "state, KiB",
    "delay of tokens, ms: first",
    "mean",
    "last",
    "shown after, ms",
    "streams on a core",
]


def main() -> None:
    """Measures and prints."""
    args = _parse()
    reference = load_experiment(args.reference)
    models = [Model(path, args.piece) for path in args.models]
    speech = list(itertools.islice(read(args.cuts), args.utterances))
    for number, (text, samples) in enumerate(speech):
        whole = recognize_whole(reference, samples)
        for model in models:
            model.hear(str(number), text, samples, whole)
    print(f"| {' | '.join(COLUMNS)} |")
    print("|" + "---|" * len(COLUMNS))
    for model in models:
        carried = Crowd(model, [samples for _, samples in speech]).largest()
        print(f"| {' | '.join([*model.figures(), str(carried)])} |", flush=True)


def read(path: str) -> Iterator[Tuple[str, Tensor]]:
    """Text and samples of a set's utterances."""
    use_libsndfile()
    for cut in read_items(path):
        try:
            samples = cut.load_audio()[0]
        except Exception as error:  # whatever lhotse makes of a missing file
            raise UserError(f"cut {cut.id} of {path} has no audio: {error!r:.200}")
        yield cut.supervisions[0].text, torch.from_numpy(samples)


@torch.no_grad()
def recognize_whole(experiment: Experiment, samples: Tensor) -> Hypothesis:
    """By greedy search, with all of the utterance in sight."""
    features = compute_features(samples, experiment.config.data.features).unsqueeze(0)
    lengths = torch.tensor([features.size(1)])
    return recognize(experiment.model, features, lengths, SearchConfig())[0][0]


class Model:
    """A model and what was measured of it.

    Args:
      path: its experiment.
      piece: ms that are recognised at once.
    """

    def __init__(self, path: str, piece: int) -> None:
        experiment = load_experiment(path)
        self.path, self.piece = path, piece
        self.encoder = experiment.config.model.encoder
        self.recognizer = StreamingRecognizer(
            experiment.model, experiment.tokenizer, SearchConfig(), piece=piece // 10
        )
        self.references: Dict[str, str] = {}
        self.texts: Dict[str, str] = {}
        self.steps: List[float] = []  # seconds a frame, of the encoder alone
        self.computing = self.audio = 0.0  # seconds
        self.state = 0  # bytes
        self.delays: List[int] = []  # frames
        self.first: List[int] = []
        self.last: List[int] = []
        self.shown: List[float] = []  # ms
        inner = experiment.model.encode_step

        def clocked(features: Tensor, *rest):
            begin = time.perf_counter()
            result = inner(features, *rest)
            spent = time.perf_counter() - begin
            if features.size(1) == piece // 10:
                self.steps.append(spent / (piece / FRAME) / features.size(0))
            return result

        experiment.model.encode_step = clocked

    def hear(self, id: str, text: str, samples: Tensor, whole: Hypothesis) -> None:
        """Recognises an utterance as a stream."""
        begin = time.perf_counter()
        stream = self.recognizer.open()
        for piece in samples.split(self.piece * SAMPLE_RATE // 1000):
            stream.accept(piece)
            self.recognizer.run([stream])
            self.state = max(self.state, size_of(stream))
        stream.finish()
        self.recognizer.run([stream])
        self.computing += time.perf_counter() - begin
        self.audio += len(samples) / SAMPLE_RATE
        self.references[id], self.texts[id] = text, stream.text
        (said,) = stream.segments or [stream.partial]
        frames = [round(1000 * t / FRAME) for t in said.times]
        delays = emission_delays(
            Emission(said.tokens, frames), Emission(whole.tokens, whole.frames)
        )
        self.delays += delays.tokens
        self.first += [] if delays.first is None else [delays.first]
        self.last += [] if delays.last is None else [delays.last]
        self.shown += [wait(self.encoder, frame) for frame in frames]

    def figures(self) -> List[str]:
        """The columns of the table but the last."""
        steps = statistics.quantiles(self.steps, n=10)
        delay = FRAME * statistics.mean(self.delays)
        return [
            self.path,
            f"{latency(self.encoder).mean:.0f}",
            f"{score(self.references, self.texts, 'word').rate:.2f}",
            f"{1e3 * statistics.median(self.steps):.2f}",
            f"{1e3 * steps[-1]:.2f}",
            f"{self.computing / self.audio:.4f}",
            f"{self.state / 1024:.0f}",
            f"{FRAME * statistics.mean(self.first):.0f}",
            f"{delay:.0f}",
            f"{FRAME * statistics.mean(self.last):.0f}",
            f"{delay + statistics.mean(self.shown):.0f}",
        ]


class Crowd:
    """Many endless streams of one model.

    Args:
      model: recognises them.
      speech: utterances that are said over and over, each stream beginning with another.
    """

    def __init__(self, model: Model, speech: Sequence[Tensor]) -> None:
        self.model, self.speech = model, speech
        self.recognizer = StreamingRecognizer(
            model.recognizer.model,
            model.recognizer.tokenizer,
            SearchConfig(),
            EndpointConfig(),
            model.piece // 10,
        )

    def largest(self) -> int:
        """The largest number that was measured to keep up; 0 if none of the numbers tried did."""
        kept, lost, number = 0, None, 32
        for _ in range(8):
            share = self.slow_step(number) / (self.model.piece / 1000)
            if share <= 1:
                kept = number
            else:
                lost = number
            number = int(number / share * 0.97)
            if lost is not None and kept >= 0.9 * lost:
                break
            number = max(number, kept + 1)
            number = number if lost is None else min(number, lost - 1)
        return kept

    def slow_step(self, number: int) -> float:
        """Seconds of a step of so many streams, features and search included: nine of ten take less."""
        size = self.model.piece * SAMPLE_RATE // 1000
        tapes = [
            torch.cat([*self.speech[i:], *self.speech[:i]])
            for i in (n * len(self.speech) // number for n in range(number))
        ]
        streams = [self.recognizer.open() for _ in tapes]
        warm = WARM * 1000 // self.model.piece
        seconds = []
        for step in range(2 * warm):
            begin = time.perf_counter()
            for stream, tape in zip(streams, tapes):
                start = step * size % (len(tape) - size)
                stream.accept(tape[start : start + size])
            self.recognizer.run(streams)
            seconds.append(time.perf_counter() - begin)
        return statistics.quantiles(seconds[warm:], n=10)[-1]


def size_of(stream: OnlineStream) -> int:
    """Bytes of what the encoder and the predictor keep of a stream."""
    return state_bytes(
        [stream.encoder_state, stream.search.output, *stream.search.state]
    )


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+", help="experiments")
    parser.add_argument(
        "--reference", required=True, help="experiment that is not streaming"
    )
    parser.add_argument("--cuts", required=True, help="utterances, with their audio")
    parser.add_argument(
        "--utterances", type=positive, default=10**6, help="so many of them"
    )
    parser.add_argument(
        "--piece", type=positive, default=320, help="ms, a multiple of 40"
    )
    args = parser.parse_args()
    if args.piece % 40:
        parser.error(f"--piece must be a multiple of 40 ms, not {args.piece}")
    return args


if __name__ == "__main__":
    keep_freed_memory()
    run_main(main)

"""Recognises speech as it comes, from a microphone's pipe or a file.

Usage:

    arecord -f S16_LE -r 16000 -c 1 -t raw | icefall-attn-stream --exp-dir exp
    icefall-attn-stream --exp-dir exp talk.wav

Standard input is 16 kHz, 16 bit, one channel, little-endian, without a header. A line is printed
for each segment when a pause or the end of the stream ends it; on a terminal one sees it grow. With
``--json`` every change is a line.
"""

import json
import sys
import time
from pathlib import Path
from typing import IO, Iterator, List, Optional

import torch
from torch import Tensor

from icefall_attn.bin.options import (
    experiment_parser,
    load_chosen,
    parse_experiment,
    search_config,
)
from icefall_attn.decoding.endpoint import EndpointConfig
from icefall_attn.decoding.online import OnlineStream, Segment, StreamingRecognizer
from icefall_attn.device import choose_device
from icefall_attn.errors import UserError, run_main

STDIN = "-"


def main(arguments: Optional[List[str]] = None) -> None:
    """Recognises one stream to its end, or until Ctrl-C.

    Raises:
      UserError: bad options, a model that cannot stream, no audio.
    """
    options = _parse(arguments)
    config = search_config(options)
    endpoint = EndpointConfig(**vars(options.endpoint))
    endpoint.validate()
    device = choose_device(options.device)

    experiment = load_chosen(options)
    recognizer = StreamingRecognizer(
        experiment.model.to(device),
        experiment.tokenizer,
        config,
        endpoint,
        options.piece // 10,
        experiment.config.data.features,
    )
    stream, show = recognizer.open(), Display(options.json)
    size = options.piece * 16  # samples
    try:
        for samples in _pieces(options.audio, size, options.real_time):
            stream.accept(samples)
            while recognizer.step([stream]):
                show(stream)
    except KeyboardInterrupt:
        pass  # what was said so far is finished
    stream.finish()
    recognizer.run([stream])
    show(stream)


class Display:
    """Prints what is new in a stream.

    Args:
      as_json: each change as a JSON line, instead of the text of segments.
    """

    def __init__(self, as_json: bool) -> None:
        self.as_json, self.live = as_json, sys.stdout.isatty() and not as_json
        self.shown, self.partial = 0, ""

    def __call__(self, stream: OnlineStream) -> None:
        for segment in stream.segments[self.shown :]:
            self._print(segment, final=True)
            self.partial = ""
        self.shown = len(stream.segments)
        partial = stream.partial
        if partial.text != self.partial:
            self.partial = partial.text
            self._print(partial, final=False)

    def _print(self, segment: Segment, final: bool) -> None:
        if self.as_json:
            line = {"text": segment.text, "final": final, "times": segment.times}
            print(json.dumps(line, ensure_ascii=False), flush=True)
        elif self.live:
            print(f"\r\x1b[K{segment.text}", end="\n" if final else "", flush=True)
        elif final:
            print(segment.text, flush=True)


def _pieces(audio: str, size: int, real_time: bool) -> Iterator[Tensor]:
    """Samples in pieces of ``size``, of a file no faster than they are spoken if so asked for."""
    from icefall_attn.data.audio import load_audio
    from icefall_attn.data.features import SAMPLE_RATE

    if audio == STDIN:
        yield from _from_pcm(sys.stdin.buffer, size)
        return
    begin, samples = time.monotonic(), load_audio(audio)
    for start in range(0, len(samples), size):
        piece = samples[start : start + size]
        if real_time:
            due = begin + (start + len(piece)) / SAMPLE_RATE
            time.sleep(max(0.0, due - time.monotonic()))
        yield piece


def _from_pcm(file: IO[bytes], size: int) -> Iterator[Tensor]:
    """16 bit samples, little-endian; half a sample at the end is left out.

    Raises:
      UserError: the first bytes are those of an audio file.
    """
    if file.isatty():
        raise UserError(
            "standard input is a terminal; pipe 16 kHz 16 bit PCM into it or name a file"
        )
    first = True
    while data := file.read(2 * size):
        if first and data[:4] in (b"RIFF", b"fLaC", b"OggS"):
            raise UserError(
                "standard input is an audio file, not bare samples; name it as an argument instead"
            )
        first = False
        data = data[: len(data) // 2 * 2]
        if data:
            samples = torch.frombuffer(bytearray(data), dtype=torch.int16)
            yield samples.float() / 32768.0


def _parse(arguments: Optional[List[str]]):
    parser = experiment_parser("icefall-attn-stream", "Recognises speech as it comes.")
    parser.add_argument(
        "audio", nargs="?", default=STDIN, help="audio file (default: samples on stdin)"
    )
    parser.add_argument(
        "--piece", type=int, default=320, help="ms that are recognised at once"
    )
    parser.add_argument(
        "--real-time", action="store_true", help="read a file as fast as it was spoken"
    )
    parser.add_argument("--json", action="store_true", help="a JSON line a change")
    parser.add_class_arguments(EndpointConfig, "endpoint")
    options = parse_experiment(parser, arguments)
    if options.piece < 10:
        raise UserError(f"--piece must be 10 ms or more, not {options.piece}")
    if options.audio != STDIN and not Path(options.audio).is_file():
        raise UserError(f"{options.audio} is not a file")
    return options


def cli() -> None:
    """Entry point of ``icefall-attn-stream``."""
    run_main(main)


if __name__ == "__main__":
    cli()

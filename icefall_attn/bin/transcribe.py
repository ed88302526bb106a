"""Transcribes audio files with a trained model.

Usage:

    icefall-attn-transcribe --exp-dir exp one.wav two.flac

Prints ``path<TAB>text``, one line per file in the order given. Any format that libsndfile
reads, any sample rate, any number of channels (averaged). A file that cannot be used is told
on stderr, the others go on, and the exit code is 1.
"""

import json
import logging
import sys
from typing import Dict, Iterator, List, Optional, Tuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from icefall_attn.bin.options import (
    experiment_parser,
    load_chosen,
    parse_experiment,
    search_config,
)
from icefall_attn.decoding import Hypothesis, recognize, word_graph
from icefall_attn.device import choose_device
from icefall_attn.errors import UserError, run_main
from icefall_attn.scoring.reports import as_json

#: Seconds; a shorter file has no frame after the encoder's subsampling.
_SHORTEST = 0.1


def main(arguments: Optional[List[str]] = None) -> None:
    """Transcribes the files of a command line.

    Raises:
      UserError: bad options; after all files are done, that some could not be used.
    """
    options = _parse(arguments)
    config = search_config(options)
    device = choose_device(options.device)

    experiment = load_chosen(options)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    model = experiment.model.to(device)
    graph = word_graph(config, experiment.tokenizer.tokens, device)
    failed = 0
    batches = _batches(
        options.audio, options.max_duration, experiment.config.data.features
    )
    for paths, features in batches:
        lengths = torch.tensor([len(f) for f in features], dtype=torch.int64)
        results: Dict[str, Optional[List[Hypothesis]]] = {}
        if features:
            padded = pad_sequence(features, batch_first=True).to(device)
            found = recognize(model, padded, lengths.to(device), config, graph)
            usable = [path for path, problem in paths if problem is None]
            results = dict(zip(usable, found))
        for path, problem in paths:
            nbest = results.get(path)
            if nbest is None:
                failed += 1
                problem = problem or f"{path} is too long for the memory"
                print(f"error: {problem}", file=sys.stderr, flush=True)
            elif options.json:
                hyps = [as_json(h, experiment.tokenizer) for h in nbest]
                line = json.dumps({"id": path, "hyps": hyps}, ensure_ascii=False)
                print(line, flush=True)
            else:
                text = experiment.tokenizer.decode(nbest[0].tokens)
                print(f"{path}\t{text}", flush=True)
    if failed:
        raise UserError(
            f"{failed} of {len(options.audio)} files could not be transcribed"
        )


def _batches(
    paths: List[str], max_duration: float, kind: str
) -> Iterator[Tuple[List[Tuple[str, Optional[str]]], List[Tensor]]]:
    """Files in order, as many at a time as fit ``max_duration`` seconds, padding included.

    Yields:
      (path, problem or None) of the files, and the features (T, F) of those without one.
    """
    from icefall_attn.data.features import FRAME_SHIFT

    files: List[Tuple[str, Optional[str]]] = []
    features: List[Tensor] = []
    longest = 0
    for path in paths:
        utterance, problem = _load(path, kind)
        if utterance is not None:
            width = max(longest, len(utterance))
            if features and width * (len(features) + 1) * FRAME_SHIFT > max_duration:
                yield files, features
                files, features, width = [], [], len(utterance)
            features.append(utterance)
            longest = width
        files.append((path, problem))
    if files:
        yield files, features


def _load(path: str, kind: str) -> Tuple[Optional[Tensor], Optional[str]]:
    """Features (T, F) of a file, or why there are none."""
    from icefall_attn.data.audio import load_audio
    from icefall_attn.data.features import SAMPLE_RATE, compute_features

    try:
        samples = load_audio(path)
    except UserError as error:
        return None, " ".join(str(error).split())
    seconds = len(samples) / SAMPLE_RATE
    if seconds < _SHORTEST:
        return None, f"{path} is too short: {seconds:.3f} s, less than {_SHORTEST} s"
    return compute_features(samples, kind), None


def _parse(arguments: Optional[List[str]]):
    parser = experiment_parser(
        "icefall-attn-transcribe", "Transcribes audio files.", 60.0
    )
    parser.add_argument("audio", nargs="+", help="audio files")
    parser.add_argument(
        "--json",
        action="store_true",
        help="print JSON lines with n-best lists, scores and token times instead",
    )
    return parse_experiment(parser, arguments)


def cli() -> None:
    """Entry point of ``icefall-attn-transcribe``."""
    run_main(main)


if __name__ == "__main__":
    cli()

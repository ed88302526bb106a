"""Decodes sets of cuts with a trained model and reports word error rates.

Usage:

    icefall-attn-decode --exp-dir exp --avg 5 --search.method modified_beam_search \
        --cuts dev=data/fbank/an4_cuts_dev.jsonl.gz test=data/fbank/an4_cuts_test.jsonl.gz

Results go to ``exp/METHOD/``: recogs, errs and wer-summary files in icefall's formats, n-best
lists as JSON lines, and a log.
"""

import logging
import sys
import time
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple

import torch

from icefall_attn.bin.options import (
    experiment_parser,
    parse_experiment,
    search_config,
)
from icefall_attn.decoding import Hypothesis, SearchConfig, recognize, word_graph
from icefall_attn.decoding.graphs import DecodingGraph
from icefall_attn.decoding.streaming import check_streamable, recognize_streams
from icefall_attn.device import choose_device
from icefall_attn.errors import UserError, run_main
from icefall_attn.files import remove_leftovers
from icefall_attn.progress import progress_bar
from icefall_attn.scoring import (
    Score,
    Summary,
    result_paths,
    result_suffix,
    score,
    write_errs,
    write_nbest,
    write_recogs,
    write_summary,
)


@dataclass
class Decoded:
    """What came out of one set.

    Args:
      references: text by utterance id.
      hypotheses: n-best list by utterance id; an utterance that failed is not in it.
      audio: seconds of audio.
      seconds: time of encoder and search, without loading.
    """

    references: Dict[str, str]
    hypotheses: Dict[str, List[Hypothesis]]
    audio: float
    seconds: float

    @property
    def rtf(self) -> float:
        """Real-time factor: seconds of computing per second of audio."""
        return self.seconds / self.audio if self.audio > 0 else 0.0


def main(arguments: Optional[List[str]] = None) -> None:
    """Decodes one set after the other.

    Raises:
      UserError: bad options, missing files.
    """
    options = _parse(arguments)
    config = search_config(options)
    sets = parse_sets(options.cuts)
    device = choose_device(options.device)

    from icefall_attn.data.loader import eval_loader
    from icefall_attn.training.checkpoint import load_experiment

    experiment = load_experiment(
        options.exp_dir, options.avg, options.by, options.checkpoint
    )
    graph = word_graph(config, experiment.tokenizer.tokens, device)
    piece = 0
    if options.streaming or options.simulate_streaming:
        check_streamable(config)
        experiment.model.init_stream(1)
        piece = options.piece // 10 if options.streaming else 0
        how = f"streaming-{options.piece}ms" if piece else "simulated-streaming"
        experiment = experiment._replace(name=f"{experiment.name}_{how}")
    suffix = result_suffix(experiment.name, config)
    directory = Path(options.exp_dir) / config.method
    remove_leftovers(directory)
    _start_log(directory, suffix)
    logging.info("options: %s", options)
    model = experiment.model.to(device)
    data = experiment.config.data
    if options.num_workers is not None:
        cache = data.cache and options.num_workers == 0
        data = replace(data, num_workers=options.num_workers, cache=cache)
    # Every set is opened before the first is decoded: a wrong path is told at once.
    loaders = {
        name: eval_loader(path, data, experiment.tokenizer, options.max_duration)
        for name, path in sets
    }
    for name, loader in loaders.items():
        decoded = decode_set(model, loader, config, device, name, graph, piece)
        texts = {
            id: experiment.tokenizer.decode(nbest[0].tokens)
            for id, nbest in decoded.hypotheses.items()
        }
        result = score(decoded.references, texts, options.unit)
        paths = result_paths(options.exp_dir, name, experiment.name, config)
        write_recogs(paths.recogs, result)
        write_errs(paths.errs, result)
        write_nbest(
            paths.nbest, decoded.references, decoded.hypotheses, experiment.tokenizer
        )
        settings = suffix[len(experiment.name) + 1 :]
        line = summarize(result, decoded, settings, name, experiment.name)
        # Last: who finds a summary finds all the files.
        write_summary(paths.summary, [line])
        _report(result, decoded, f"{name}-{config.method}", paths.errs)


def decode_set(
    model,
    loader,
    config: SearchConfig,
    device: torch.device,
    name: str,
    graph: Optional[DecodingGraph] = None,
    piece: int = 0,
) -> Decoded:
    """Decodes every batch of a loader; with a ``piece`` as streams, in so many frames of 10 ms.

    Raises:
      UserError: two utterances have one id.
    """
    decoded = Decoded({}, {}, 0.0, 0.0)
    length = len(loader) if hasattr(loader, "__len__") else None
    for batch in progress_bar(loader, desc=name, total=length):
        for id, text in zip(batch.ids, batch.texts):
            if id in decoded.references:
                raise UserError(f"utterance '{id}' is in set '{name}' twice")
            decoded.references[id] = text
        begin = _now(device)
        batch = batch.to(device)
        speech = (model, batch.features, batch.feature_lengths, config)
        results: Sequence[Optional[List[Hypothesis]]]
        if piece > 0:
            results = recognize_streams(*speech, piece)
        else:
            results = recognize(*speech, graph)
        decoded.seconds += _now(device) - begin
        decoded.audio += sum(batch.durations)
        for id, nbest in zip(batch.ids, results):
            if nbest is None:
                logging.warning("%s: no hypothesis; its words count as deleted", id)
            else:
                decoded.hypotheses[id] = nbest
    return decoded


def summarize(
    result: Score, decoded: Decoded, settings: str, set_name: str, model: str
) -> Summary:
    """The line of a wer-summary file."""
    return Summary(
        settings=settings,
        rate=result.rate,
        insertions=result.insertions,
        deletions=result.deletions,
        substitutions=result.substitutions,
        ref_units=result.ref_units,
        missing=len(result.missing),
        rtf=decoded.rtf,
        unit=result.unit,
        set_name=set_name,
        model=model,
    )


def parse_sets(values: List[str]) -> List[Tuple[str, str]]:
    """``NAME=FILE`` options as pairs.

    Raises:
      UserError: a value without a name, a name that cannot be part of a file name or
        comes twice.
    """
    sets: List[Tuple[str, str]] = []
    for value in values:
        name, _, path = value.partition("=")
        if not name or not path:
            raise UserError(f"--cuts takes NAME=FILE, not '{value}'")
        if "/" in name or "\t" in name:
            raise UserError(f"set name '{name}' would not make a file name")
        if name in dict(sets):
            raise UserError(f"set '{name}' is given twice")
        if not Path(path).is_file():
            raise UserError(f"cuts of set '{name}': no file {path}")
        sets.append((name, path))
    return sets


def _parse(arguments: Optional[List[str]]):
    parser = experiment_parser(
        "icefall-attn-decode", "Decodes cuts and reports word error rates.", 600.0
    )
    parser.add_argument(
        "--cuts", nargs="+", required=True, help="sets to decode, each as NAME=FILE"
    )
    parser.add_argument(
        "--num-workers",
        type=int,
        help="processes that load data; default: as in training",
    )
    parser.add_argument(
        "--unit",
        choices=["word", "char"],
        default="word",
        help="count errors in words or in characters",
    )
    parser.add_argument(
        "--streaming",
        type=bool,
        default=False,
        help="decode utterances as streams, many at a time, piece by piece",
    )
    parser.add_argument(
        "--piece", type=int, default=320, help="--streaming: ms of a piece"
    )
    parser.add_argument(
        "--simulate-streaming",
        type=bool,
        default=False,
        help="decode a model that can stream in one pass, whose results are those of --streaming",
    )
    options = parse_experiment(parser, arguments)
    if options.streaming and options.simulate_streaming:
        raise UserError("--streaming and --simulate-streaming do not go together")
    if options.piece < 10:
        raise UserError(f"--piece must be 10 ms or more, not {options.piece}")
    return options


def _start_log(directory: Path, suffix: str) -> None:
    """Logs to a file of its own and, warnings only, to stderr."""
    from icefall_attn.environment import environment_report

    directory.mkdir(parents=True, exist_ok=True)
    date = datetime.now().strftime("%Y-%m-%d-%H-%M-%S")
    file = logging.FileHandler(
        directory / f"log-decode-{suffix}-{date}", encoding="utf-8"
    )
    console = logging.StreamHandler(sys.stderr)
    console.setLevel(logging.WARNING)
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(message)s",
        handlers=[file, console],
        force=True,
    )
    for line in environment_report().splitlines():
        logging.info(line)


def _report(result: Score, decoded: Decoded, label: str, errs: Path) -> None:
    line = result.console_line(label)
    logging.info(line)
    logging.info(
        "%d utterances, %.1f s of audio in %.1f s: real-time factor %.4f",
        len(decoded.references),
        decoded.audio,
        decoded.seconds,
        decoded.rtf,
    )
    logging.info("errors are listed in %s", errs)
    if result.missing:
        logging.warning(
            "%d utterances have no hypothesis and count as deleted: %s",
            len(result.missing),
            " ".join(result.missing),
        )
    print(line, flush=True)


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def cli() -> None:
    """Entry point of ``icefall-attn-decode``."""
    run_main(main)


if __name__ == "__main__":
    cli()

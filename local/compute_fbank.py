#!/usr/bin/env python3
"""Cuts with features from recordings and supervisions.

    compute_fbank.py --manifest-dir data/manifests --prefix an4 --parts train dev test \\
        --perturb train --speeds 0.9 1.1 --output-dir data/fbank --nj 2

writes `an4_cuts_PART.jsonl.gz` and, beside them, the features in `an4_feats_PART/`. The parts named
by `--perturb` get a copy at each other speed and are shuffled, so that they can be read in order.

Utterances that cannot be used (no or damaged audio, audio that is not what the manifest says, no
text, too short, too long, an id that was there before) are left out and listed with the reason in
`an4_left-out_PART.txt`; more of them than `--max-bad-share` are an error.

The work is done in chunks. Finished ones stay: a killed run goes on where it was, corrected
transcripts are put in without computing features again, and only other audio is computed anew.
"""

import argparse
import errno
import logging
import os
import re
import shutil
import time
from concurrent.futures import Executor
from contextlib import contextmanager
from functools import partial
from itertools import count as count_up
from itertools import islice
from pathlib import Path
from typing import Iterable, Iterator, List, Optional, Tuple

import torch

from icefall_attn.data.audio import use_libsndfile
from icefall_attn.data.chunks import Chunk, Plan, compute_chunk
from icefall_attn.data.features import FEATURE_DIMS
from icefall_attn.data.manifests import (
    manifest_path,
    read_lines,
    shuffled_lines,
    write_lines,
)
from icefall_attn.data.utterances import Utterance, read_utterances
from icefall_attn.errors import UserError, run_main
from icefall_attn.files import atomic_write, remove_leftovers
from icefall_attn.parallel import map_in_order, processes
from icefall_attn.progress import progress_bar


def main() -> None:
    args = parse_args()
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    check(args)
    with processes(args.nj, init_process) as executor:
        for part in args.parts:
            with full_disk_told(args.output_dir):
                prepare(part, args, executor)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--manifest-dir",
        type=Path,
        required=True,
        metavar="DIR",
        help="of the recordings and supervisions",
    )
    parser.add_argument("--prefix", required=True, help="name of the corpus in files")
    parser.add_argument(
        "--parts", nargs="+", required=True, metavar="PART", help="such as train dev"
    )
    parser.add_argument(
        "--perturb", nargs="*", default=[], metavar="PART", help="parts to perturb"
    )
    parser.add_argument(
        "--speeds",
        nargs="*",
        type=float,
        default=[0.9, 1.1],
        metavar="SPEED",
        help="of the copies (default: 0.9 1.1)",
    )
    parser.add_argument(
        "--output-dir", type=Path, required=True, metavar="DIR", help="of the cuts"
    )
    parser.add_argument(
        "--nj", type=int, default=min(8, os.cpu_count() or 1), help="processes"
    )
    parser.add_argument(
        "--features",
        choices=sorted(FEATURE_DIMS),
        default="fbank",
        help="80 log mel energies (default), or these and 3 of Kaldi's pitch; train with the same"
        " data.features",
    )
    parser.add_argument(
        "--storage",
        choices=["lilcom", "numpy", "none"],
        default="lilcom",
        help="lilcom (default): compressed archives, a third of the size, rounded to 1/32;"
        " numpy: one exact file per utterance, faster to read; none: only the audio is checked,"
        " and data.on_the_fly=true computes features in training",
    )
    parser.add_argument(
        "--longest",
        type=float,
        default=50.0,
        metavar="SECONDS",
        help="longer utterances are left out (default: 50)",
    )
    parser.add_argument(
        "--max-bad-share",
        type=float,
        default=0.01,
        metavar="SHARE",
        help="of the utterances may be left out (default: 0.01)",
    )
    parser.add_argument(
        "--chunk-size",
        type=int,
        default=100,
        metavar="N",
        help="utterances that are done or not done as a whole (default: 100)",
    )
    parser.add_argument(
        "--share",
        metavar="I/N",
        help="compute the I-th of N shares of the chunks and nothing else, on one of several"
        " machines; the program without it joins them",
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="keep nothing that is there"
    )
    return parser.parse_args()


def check(args: argparse.Namespace) -> None:
    """Refuses options without a meaning."""
    for name in ("nj", "chunk_size"):
        if getattr(args, name) < 1:
            option = f"--{name.replace('_', '-')}"
            raise UserError(f"{option} is {getattr(args, name)}; give at least 1")
    for part in args.perturb:
        if part not in args.parts:
            raise UserError(f"--perturb names {part!r}, which is not among --parts")
    for speed in args.speeds:
        if not 0.5 <= speed <= 2.0 or speed == 1.0:
            raise UserError(f"--speeds has {speed}; use 0.5 to 2.0 without 1.0")
    if args.share:
        found = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", args.share)
        if not found or int(found[1]) > int(found[2]):
            raise UserError(f"--share is {args.share!r}; give I/N with I from 1 to N")
        if args.overwrite:
            raise UserError("--share and --overwrite do not go together")
    if not 0.0 <= args.max_bad_share < 1.0:
        raise UserError(
            f"--max-bad-share is {args.max_bad_share}; use 0 or more and less than 1"
        )


def prepare(part: str, args: argparse.Namespace, executor: Optional[Executor]) -> None:
    """Makes the cuts of one part."""
    recordings, supervisions = (
        manifest_path(args.manifest_dir, args.prefix, kind, part)
        for kind in ("recordings", "supervisions")
    )
    total = sum(1 for _ in read_lines(supervisions))
    output = manifest_path(args.output_dir, args.prefix, "cuts", part)
    plan = Plan(
        directory=args.output_dir.resolve() / f"{args.prefix}_feats_{part}",
        features=args.features,
        storage=args.storage,
        speeds=tuple(args.speeds) if part in args.perturb else (),
        longest=args.longest,
    )
    if args.overwrite:
        output.unlink(missing_ok=True)
        shutil.rmtree(plan.directory, ignore_errors=True)
    plan.directory.mkdir(parents=True, exist_ok=True)
    remove_leftovers(args.output_dir)

    jobs = in_chunks(read_utterances(recordings, supervisions), args.chunk_size)
    if args.share:
        compute_share(part, jobs, plan, args, executor)
        return
    results = progress_bar(
        map_in_order(partial(compute_chunk, plan), jobs, args.nj, executor),
        desc=part,
        total=-(-total // args.chunk_size),
        unit="chunk",
    )
    left_out = LeftOut(output.with_name(f"{args.prefix}_left-out_{part}.txt"))
    start = time.perf_counter()
    chunks = left_out.list_from(results)
    report_speed(part, chunks, time.perf_counter() - start, args.nj)
    left_out.check(part, total, args.max_bad_share)
    count = sum(chunk.cuts for chunk in chunks)
    if count == 0:
        raise UserError(f"{args.manifest_dir}: no utterance in the part {part!r}")
    lines = (line for chunk in chunks for line in read_lines(chunk.path))
    if plan.speeds:
        lines = shuffled_lines(lines, count, args.output_dir)
    report(part, chunks, output, write_lines(lines, output), left_out.count)
    remove_others(plan.directory, chunks)


def compute_share(
    part: str,
    jobs: Iterator[Tuple[int, List[Utterance]]],
    plan: Plan,
    args: argparse.Namespace,
    executor: Optional[Executor],
) -> None:
    """Computes some of the chunks of a part; they are found when all are joined."""
    number, count = map(int, args.share.split("/"))
    own = (job for job in jobs if job[0] % count == number - 1)
    start = time.perf_counter()
    chunks = list(map_in_order(partial(compute_chunk, plan), own, args.nj, executor))
    report_speed(part, chunks, time.perf_counter() - start, args.nj)


def in_chunks(
    utterances: Iterator[Utterance], size: int
) -> Iterator[Tuple[int, List[Utterance]]]:
    """Chunks with their index."""
    for index in count_up():
        chunk = list(islice(utterances, size))
        if not chunk:
            return
        yield index, chunk


class LeftOut:
    """The utterances of a part that cannot be used, in a file with the reasons."""

    def __init__(self, path: Path):
        self.path = path
        self.count = 0
        self.first = ""

    def list_from(self, results: Iterable[Chunk]) -> List[Chunk]:
        """Writes the file as the chunks come; returns them without what is in it."""
        chunks = []
        with atomic_write(self.path) as file:
            for chunk in results:
                for name, reason in chunk.left_out:
                    print(name, reason, sep="\t", file=file)
                    self.first = self.first or f"{name!r}: {reason}"
                self.count += len(chunk.left_out)
                chunks.append(chunk._replace(left_out=[]))
        return chunks

    def check(self, part: str, total: int, share: float) -> None:
        """Raises `UserError` if they are more than a share of all; removes an empty file."""
        if self.count > share * total:
            raise UserError(
                f"{part}: {self.count} of {total} utterances cannot be used, more than"
                f" --max-bad-share {share:g}; {self.path} lists them, first {self.first}"
            )
        if self.count == 0:
            self.path.unlink()


def init_process() -> None:
    """One thread for each process: the processes are the parallel part."""
    torch.set_num_threads(1)
    use_libsndfile()


@contextmanager
def full_disk_told(directory: Path) -> Iterator[None]:
    """Says what to do about a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise UserError(
            f"the disk of {directory} is full; what is finished is kept: make room and start again"
        )


def report_speed(part: str, chunks: List[Chunk], seconds: float, nj: int) -> None:
    """Logs how fast the audio went by."""
    audio = sum(chunk.read for chunk in chunks)
    if audio > 0:
        logging.info(
            "%s: %.2f hours of audio in %.1f s, %.0f x real time, --nj %d",
            *(part, audio / 3600, seconds, audio / seconds, nj),
        )


def report(
    part: str, chunks: List[Chunk], output: Path, written: bool, bad: int
) -> None:
    """Logs what became of a part."""
    if not written:
        logging.info("%s: %s is there, kept", part, output)
        return
    changed = sum(chunk.changed for chunk in chunks)
    if changed:
        logging.info("%s: %d transcripts changed, features kept", part, changed)
    logging.info(
        "%s: %d cuts, %.2f hours, %d utterances left out",
        part,
        sum(chunk.cuts for chunk in chunks),
        sum(chunk.seconds for chunk in chunks) / 3600,
        bad,
    )


def remove_others(directory: Path, chunks: List[Chunk]) -> None:
    """Removes what belongs to no chunk: of an earlier run with other audio, or a killed one."""
    names = {chunk.path.name.split(".")[0] for chunk in chunks}
    for path in directory.iterdir():
        if path.name.split(".")[0] not in names:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


if __name__ == "__main__":
    run_main(main)

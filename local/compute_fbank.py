#!/usr/bin/env python3
"""Cuts with features from recordings and supervisions.

    compute_fbank.py --manifest-dir data/manifests --prefix an4 --parts train dev test \\
        --perturb train --speeds 0.9 1.1 --output-dir data/fbank --nj 2

writes `an4_cuts_PART.jsonl.gz` and, beside them, the features in `an4_feats_PART/`. The parts named
by `--perturb` get a copy at each other speed and are shuffled, so that they can be read in order.
A part that is there already, made from the same audio, is kept; other transcripts are put into it
without computing its features again. `--overwrite` computes everything again.
"""

import argparse
import json
import logging
import multiprocessing
import os
import random
import shutil
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import torch
from lhotse import CutSet, LilcomChunkyWriter, NumpyFilesWriter
from lhotse.cut import Cut

from icefall_attn.data.audio import use_libsndfile
from icefall_attn.data.features import SAMPLE_RATE, feature_extractor
from icefall_attn.data.manifests import manifest_path, read_manifest, write_manifest
from icefall_attn.errors import UserError, run_main

STORAGE = {"lilcom": LilcomChunkyWriter, "numpy": NumpyFilesWriter}


def main() -> None:
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
        "--storage",
        choices=sorted(STORAGE),
        default="lilcom",
        help="lilcom: a few compressed archives, a third of the size, rounded to 1/32;"
        " numpy: one exact file per utterance, faster to read",
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="keep nothing that is there"
    )
    args = parser.parse_args()
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    if args.nj < 1:
        raise UserError(f"--nj is {args.nj}; at least one process is needed")
    for part in args.perturb:
        if part not in args.parts:
            raise UserError(f"--perturb names {part!r}, which is not among --parts")
    for speed in args.speeds:
        if not 0.5 <= speed <= 2.0 or speed == 1.0:
            raise UserError(f"--speeds has {speed}; use 0.5 to 2.0 without 1.0")

    init_worker()
    # Processes that are spawned do not inherit torch's threads, which a fork can lock up.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(args.nj, context, init_worker) as executor:
        for part in args.parts:
            speeds = args.speeds if part in args.perturb else []
            cuts = read_cuts(args.manifest_dir, args.prefix, part, speeds)
            output = manifest_path(args.output_dir, args.prefix, "cuts", part)
            features = args.output_dir.resolve() / f"{args.prefix}_feats_{part}"
            stored = None
            if not args.overwrite:
                stored = read_finished(output, cuts, args.storage)
            if stored is None:
                cuts = store_features(cuts, features, args.nj, args.storage, executor)
                if speeds:
                    random.Random(0).shuffle(cuts)
            else:
                cuts, changed = with_supervisions(stored, cuts)
                if changed == 0:
                    logging.info("%s: %s is there, kept", part, output)
                    continue
                logging.info("%s: %d transcripts changed, features kept", part, changed)
            write_manifest(CutSet.from_cuts(cuts), output)
            hours = sum(cut.duration for cut in cuts) / 3600
            logging.info("%s: %d cuts, %.2f hours", part, len(cuts), hours)


def init_worker() -> None:
    """One thread for each process: the processes are the parallel part."""
    torch.set_num_threads(1)
    use_libsndfile()


def read_cuts(
    manifest_dir: Path, prefix: str, part: str, speeds: List[float]
) -> List[Cut]:
    """Cuts of one utterance each, named as their supervisions, with copies at other speeds."""
    recordings, supervisions = (
        read_manifest(manifest_path(manifest_dir, prefix, kind, part))
        for kind in ("recordings", "supervisions")
    )
    cuts = CutSet.from_manifests(recordings=recordings, supervisions=supervisions)
    if any(recording.sampling_rate != SAMPLE_RATE for recording in recordings):
        cuts = cuts.resample(SAMPLE_RATE)
    cuts = cuts.trim_to_supervisions(keep_overlapping=False)
    cuts = [cut.with_id(cut.supervisions[0].id) for cut in cuts]
    if not cuts:
        raise UserError(f"{manifest_dir}: no utterance in the part {part!r}")
    return cuts + [cut.perturb_speed(speed) for speed in speeds for cut in cuts]


def read_finished(output: Path, cuts: List[Cut], storage: str) -> Optional[List[Cut]]:
    """The cuts in ``output`` if they are of the same audio, at these speeds, with features."""
    if not output.is_file():
        return None
    stored = list(read_manifest(output))
    wanted = {cut.id: _audio_of(cut) for cut in cuts}
    finished = {cut.id: _audio_of(cut) for cut in stored} == wanted and all(
        cut.has_features
        and cut.features.storage_type == STORAGE[storage].name
        and Path(cut.features.storage_path).exists()
        for cut in stored
    )
    return stored if finished else None


def with_supervisions(stored: List[Cut], cuts: List[Cut]) -> Tuple[List[Cut], int]:
    """``stored`` with the supervisions of ``cuts``, and how many of them differ."""
    new = {cut.id: cut.supervisions for cut in cuts}
    changed = sum(cut.supervisions != new[cut.id] for cut in stored)
    return [replace(cut, supervisions=new[cut.id]) for cut in stored], changed


def store_features(
    cuts: List[Cut], directory: Path, nj: int, storage: str, executor: Executor
) -> List[Cut]:
    """Computes the features of cuts into ``directory``, which appears when it is whole."""
    temporary = directory.with_name(f".{directory.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    jobs = min(nj, len(cuts))
    try:
        stored = CutSet.from_cuts(cuts).compute_and_store_features(
            feature_extractor(),
            temporary if jobs > 1 else temporary / "feats-0",
            num_jobs=jobs,
            storage_type=STORAGE[storage],
            executor=executor if jobs > 1 else None,
            progress_bar=jobs == 1,
        )
    except OSError:  # a full disk and the like
        raise
    except Exception as error:
        check_audio(cuts)
        raise UserError(f"lhotse cannot compute features: {error!r}")
    by_id = {cut.id: cut for cut in stored}
    if len(by_id) < len(cuts):  # lhotse leaves out some of what it cannot read
        check_audio(cuts)
        raise UserError(f"lhotse left out {len(cuts) - len(by_id)} utterances")
    shutil.rmtree(directory, ignore_errors=True)
    os.replace(temporary, directory)
    return [_moved(by_id[cut.id], temporary, directory) for cut in cuts]


def check_audio(cuts: List[Cut]) -> None:
    """Raises `UserError` with the first utterance whose audio cannot be read."""
    for cut in cuts:
        try:
            cut.load_audio()
        except Exception:  # what lhotse makes of it tells a user nothing
            source = cut.recording.sources[0].source
            raise UserError(f"the audio of {cut.id!r} cannot be read from {source}")


def _audio_of(cut: Cut) -> Dict[str, Any]:
    values = replace(cut, supervisions=[], features=None).to_dict()
    return json.loads(json.dumps(values))  # as a manifest gives it back


def _moved(cut: Cut, old: Path, new: Path) -> Cut:
    path = new / Path(cut.features.storage_path).relative_to(old)
    return replace(cut, features=replace(cut.features, storage_path=str(path)))


if __name__ == "__main__":
    run_main(main)

#!/usr/bin/env python3
"""Cuts of noises or room impulse responses, for training with data.noise_cuts and data.rir_cuts.

    prepare_noise.py --kind noise --corpus-dir download/musan --features \\
        --output data/fbank/musan_cuts.jsonl.gz
    prepare_noise.py --kind rir --corpus-dir download/RIRS_NOISES \\
        --output data/fbank/rir_cuts.jsonl.gz

The directory is searched for wav and flac files: MUSAN, or any other noises. Of RIRS_NOISES the
real and the simulated responses are taken. Only the first channel is used. Noises are divided into
windows of about 10 s; their features, which training needs unless data.on_the_fly is true, come to
lie beside the cuts. Audio that cannot be read is left out and named, and an error if it is more than one
file in a hundred. Finished files are kept unless `--overwrite`; a run that was killed goes on where it was.
"""

import logging
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Iterable, Iterator, List, Literal, Tuple

import torch
from lhotse import CutSet, LilcomChunkyWriter, MonoCut, Recording
from lhotse.recipes import download_musan, download_rir_noise, prepare_rir_noise

from icefall_attn.data.audio import use_libsndfile
from icefall_attn.data.download import downloading
from icefall_attn.data.features import SAMPLE_RATE, feature_extractor
from icefall_attn.data.manifests import read_manifest, write_manifest
from icefall_attn.errors import UserError
from icefall_attn.parallel import map_in_order, processes
from icefall_attn.program import run_program
from icefall_attn.progress import progress_bar

# Seconds, about.
WINDOW = 10.0
PIECE = 100  # cuts whose features are there or not as a whole
MAX_BAD_SHARE = 0.01
DOWNLOADS = {
    "noise": ("musan", download_musan),
    "rir": ("RIRS_NOISES", download_rir_noise),
}


def prepare_noise(
    kind: Literal["noise", "rir"],
    corpus_dir: Path,
    output: Path,
    download: bool = False,
    features: bool = False,
    nj: int = 4,
    overwrite: bool = False,
) -> None:
    """Writes the cuts.

    Args:
      kind: noises, or room impulse responses.
      corpus_dir: of the audio.
      output: file of the cuts, NAME.jsonl.gz.
      download: fetch MUSAN (noise, 11 GB) or RIRS_NOISES (rir, 1.3 GB) from openslr.org if the
        directory, which must have that name, is not there.
      features: compute features too (noise only).
      nj: processes that compute them.
      overwrite: keep nothing that is there.

    Raises:
      UserError: on options that do not fit, and audio that is missing or cannot be read.
    """
    if nj < 1:
        raise UserError(f"--nj is {nj}; at least one process is needed")
    if features and kind == "rir":
        raise UserError("--features is for noises: impulse responses work on audio")
    if not output.name.endswith(".jsonl.gz"):
        raise UserError(f"--output is {output}; its name should end in .jsonl.gz")
    if output.is_file() and not overwrite:
        first = next(iter(read_manifest(output, lazy=True)))
        if first.has_features or not features:
            logging.info("%s is there, kept", output)
            return
    if download:
        fetch(kind, corpus_dir)
    init_worker()
    cuts = read_cuts(kind, corpus_dir)
    if features:
        # The old cuts name features that are about to be replaced.
        output.unlink(missing_ok=True)
        if overwrite:
            shutil.rmtree(features_dir(output), ignore_errors=True)
        cuts = store_features(cuts, features_dir(output), nj)
    write_manifest(CutSet.from_cuts(cuts), output)
    hours = sum(cut.duration for cut in cuts) / 3600
    logging.info("%s: %d cuts, %.2f hours", output, len(cuts), hours)


def init_worker() -> None:
    """One thread for each process: the processes are the parallel part."""
    torch.set_num_threads(1)
    use_libsndfile()


def fetch(kind: str, corpus_dir: Path) -> None:
    """Downloads the public corpus of a kind unless the directory is there."""
    name, download = DOWNLOADS[kind]
    if corpus_dir.name != name:
        raise UserError(f"--download makes a directory {name}, not {corpus_dir.name}")
    if corpus_dir.is_dir():
        return
    # The archive stays in it until all is unpacked, so that an interrupted download goes on.
    temporary = corpus_dir.with_name(f".{name}.download")
    shutil.rmtree(temporary / name, ignore_errors=True)
    with downloading(name, corpus_dir):
        download(temporary)
    os.replace(temporary / name, corpus_dir)
    shutil.rmtree(temporary)


def read_cuts(kind: str, corpus_dir: Path) -> List[MonoCut]:
    """Cuts of all audio below a directory: noises in windows, impulse responses whole."""
    if not corpus_dir.is_dir():
        raise UserError(f"{corpus_dir} is no directory; download it first")
    official = corpus_dir / DOWNLOADS["rir"][0]
    if not official.is_dir():
        official = corpus_dir
    if kind == "rir" and (official / "simulated_rirs").is_dir():
        parts = prepare_rir_noise(official, parts=("real_rir", "sim_rir")).values()
        recordings = [r for part in parts for r in part["recordings"]]
    else:
        recordings = _scan(corpus_dir)
    if not recordings:
        raise UserError(f"{corpus_dir} has no wav or flac file")
    return list(_cut(recordings, WINDOW if kind == "noise" else float("inf")))


def features_dir(output: Path) -> Path:
    """Where the features of a file of cuts lie."""
    return output.resolve().with_name(output.name.replace(".jsonl.gz", "_feats"))


def store_features(cuts: List[MonoCut], directory: Path, nj: int) -> List[MonoCut]:
    """Computes features into ``directory``, in pieces: those that a killed run has finished are kept."""
    directory.mkdir(parents=True, exist_ok=True)
    starts = range(0, len(cuts), PIECE)
    jobs = [(directory, start, cuts[start : start + PIECE]) for start in starts]
    stored: List[MonoCut] = []
    with processes(nj, init_worker) as executor:
        for piece in progress_bar(
            map_in_order(store_piece, jobs, nj, executor), total=len(jobs), desc="noise"
        ):
            stored += piece
    return stored


def store_piece(job: Tuple[Path, int, List[MonoCut]]) -> List[MonoCut]:
    """The cuts with their features, which are computed unless a file says that they are there."""
    directory, start, cuts = job
    done = directory / f"{start:06d}.jsonl.gz"
    if done.is_file():
        stored = list(read_manifest(done))
        if [drop_features(cut) for cut in stored] == cuts:
            return stored
    path = directory / f"{start:06d}.lca"
    path.unlink(missing_ok=True)
    extractor = feature_extractor()
    with LilcomChunkyWriter(path) as storage:
        stored = []
        for cut in cuts:
            try:
                stored.append(cut.compute_and_store_features(extractor, storage))
            except OSError:
                raise
            except Exception as error:  # of lhotse or libsndfile
                raise UserError(f"the audio of {cut.id!r} cannot be read: {error}")
    write_manifest(CutSet.from_cuts(stored), done)
    return stored


def drop_features(cut: MonoCut) -> MonoCut:
    """The cut as it was before they were computed."""
    return replace(cut, features=None)


def _scan(directory: Path) -> List[Recording]:
    found, bad = [], []
    for path in sorted(directory.rglob("*")):
        if path.suffix.lower() in (".wav", ".flac"):
            try:
                name = str(path.relative_to(directory))
                found.append(Recording.from_file(path.resolve(), recording_id=name))
            except Exception as error:
                bad.append(f"{path} cannot be read as audio: {error}")
                logging.warning("left out: %s", bad[-1])
    if len(bad) > MAX_BAD_SHARE * (len(found) + len(bad)):
        raise UserError(
            f"{bad[0]}; with it {len(bad)} of {len(found) + len(bad)} files, more than"
            f" {MAX_BAD_SHARE:.0%}: remove them from {directory}"
        )
    return found


def _cut(recordings: Iterable[Recording], window: float) -> Iterator[MonoCut]:
    for recording in recordings:
        if recording.sampling_rate != SAMPLE_RATE:
            recording = recording.resample(SAMPLE_RATE)
        count = max(1, round(recording.duration / window))
        ends = [recording.num_samples * (i + 1) // count for i in range(count)]
        for number, (begin, end) in enumerate(zip([0, *ends], ends)):
            yield MonoCut(
                id=f"{recording.id}-{number}" if count > 1 else recording.id,
                start=begin / SAMPLE_RATE,
                duration=(end - begin) / SAMPLE_RATE,
                channel=recording.channel_ids[0],
                recording=recording,
            )


if __name__ == "__main__":
    run_program(prepare_noise, __doc__)

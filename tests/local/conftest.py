"""The data-preparation programs, as modules and as programs, and where real corpora lie."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from toy_manifests import write_toy_part

from icefall_attn.data import chunks

ROOT = Path(__file__).parents[2]
LOCAL = ROOT / "local"
AN4 = ROOT / "egs/an4/ASR/local"
DIGITS = ROOT / "egs/digits/ASR/local"
LIBRISPEECH = ROOT / "egs/librispeech/ASR/local"
AISHELL = ROOT / "egs/aishell/ASR/local"
DATA = Path(os.environ.get("ICEFALL_ATTN_DATA", ROOT.parent / "shared/data"))

# As a program finds the modules beside it.
sys.path[:0] = map(str, (LOCAL, AN4, DIGITS, LIBRISPEECH, AISHELL))


@pytest.fixture(scope="session")
def run_program():
    """Runs a program with options; returns what it did and wrote."""

    def run(folder, name, *options, path=ROOT):
        program = {"local": LOCAL, "an4": AN4, "digits": DIGITS}[folder] / name
        return subprocess.run(
            [sys.executable, str(program), *map(str, options)],
            env={
                **os.environ,
                "PYTHONPATH": f"{path}:{ROOT}:{DIGITS}",
                "OMP_NUM_THREADS": "1",
            },
            capture_output=True,
            text=True,
            timeout=300,
        )

    return run


@pytest.fixture
def call_main(monkeypatch):
    """Calls a program's `main` with options, in this process: quicker than `run_program`."""
    threads = torch.get_num_threads()

    def call(main, *options):
        monkeypatch.setattr(sys, "argv", ["program", *map(str, options)])
        main()

    yield call
    torch.set_num_threads(threads)


@pytest.fixture
def manifests(tmp_path):
    """`toy_{recordings,supervisions}_{train,test}`: five and three utterances of noise."""
    write_toy_part(tmp_path, "train", 5)
    write_toy_part(tmp_path, "test", 3)
    return tmp_path / "manifests"


@pytest.fixture
def compute(call_main, manifests):
    """Calls `compute_fbank` on ``manifests``, for an output directory and further options."""
    import compute_fbank

    def call(output, *options):
        options = ("--prefix", "toy", "--output-dir", output, *options)
        call_main(compute_fbank.main, "--manifest-dir", manifests, *options)

    return call


@pytest.fixture(scope="session")
def real_an4():
    """The AN4 corpus; set ICEFALL_ATTN_DATA to the folder that holds `an4`."""
    corpus = DATA / "an4"
    if not (corpus / "etc").is_dir():
        pytest.skip(f"no AN4 in {DATA}; set ICEFALL_ATTN_DATA")
    return corpus


@pytest.fixture(scope="session")
def real_noise():
    """A folder with `noise` and `rir`; set ICEFALL_ATTN_DATA to it."""
    if not ((DATA / "noise").is_dir() and (DATA / "rir").is_dir()):
        pytest.skip(f"no noise and rir in {DATA}; set ICEFALL_ATTN_DATA")
    return DATA


@pytest.fixture
def computed(monkeypatch):
    """The names of the cuts whose audio was read."""
    names = []

    def load(cut):
        names.append(cut.id)
        return load_samples(cut)

    load_samples = chunks.load_samples
    monkeypatch.setattr(chunks, "load_samples", load)
    return names

"""Installs icefall_attn: ``tools/setup_env.sh`` does it, with tested versions of everything."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
README = HERE / "README.md"
PROGRAMS = {
    "train": "train",
    "launch": "launch",
    "decode": "decode",
    "transcribe": "transcribe",
    "stream": "stream",
    "results": "results",
    "compare": "compare",
    "sweep": "sweep",
    "check-env": "check_env",
}

setup(
    name="icefall_attn",
    version=re.search(
        r'__version__ = "(.+)"',
        (HERE / "icefall_attn" / "__init__.py").read_text(encoding="utf-8"),
    ).group(1),
    description="Conformer transducers whose encoder attention is a choice",
    long_description=README.read_text(encoding="utf-8") if README.exists() else "",
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    classifiers=["License :: OSI Approved :: Apache Software License"],
    packages=find_packages(include=["icefall_attn", "icefall_attn.*"]),
    python_requires=">=3.10",
    install_requires=[
        "torch>=1.13.1",
        "numpy>=1.23",
        "lhotse>=1.33,<2",
        "urllib3",  # imported by lhotse, which does not declare it
        "lilcom>=1.7",  # the same
        "scipy>=1.10",  # the same, to resample without torchaudio
        "soundfile>=0.12",
        "sentencepiece>=0.2",
        "kaldialign>=0.9",
        "jsonargparse>=4.49",
        "docstring_parser",  # the options' help texts, for jsonargparse
        "PyYAML>=6",
        "tensorboard>=2.14",
        "six",  # imported by torch 1.13's TensorBoard writer
        "tqdm>=4.66",
        "matplotlib>=3.7",
    ],
    # k2 is no extra: its wheel must match torch exactly, and the ones for torch 1.13.1 can only
    # be told apart by their hashes, which an extra cannot hold. requirements/k2.txt has them.
    extras_require={
        "synthesis": ["espeakng-loader>=0.2"],
        "graph": ["kaldilm>=1.15"],  # n-grams to graphs, for the searches with LG
        "pitch": ["kaldi-native-fbank>=1.23"],
        "test": ["pytest>=7", "kaldi-native-fbank>=1.23"],
    },
    entry_points={
        "console_scripts": [
            f"icefall-attn-{program} = icefall_attn.bin.{module}:cli"
            for program, module in PROGRAMS.items()
        ]
    },
)

"""A copy of the recipes, and how their scripts are called."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("ICEFALL_ATTN_DATA", ROOT.parent / "shared/data"))


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of the scripts in a directory with a space in its name."""
    directory = tmp_path_factory.mktemp("clone") / "my copy"
    for part in ("egs", "local", "tools"):
        skip = shutil.ignore_patterns("data", "exp*", "__pycache__", "download")
        shutil.copytree(ROOT / part, directory / part, ignore=skip)
    return directory


@pytest.fixture(scope="module")
def run(checkout):
    """``run(recipe, script, *options)`` calls a script of a recipe in the copy."""
    programs = Path(sys.executable).parent

    def call(recipe, script, *options):
        path = checkout / "egs" / recipe / "ASR" / script
        return subprocess.run(
            [str(path), "--python", sys.executable, *map(str, options)],
            cwd=path.parent,
            env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=600,
        )

    return call


@pytest.fixture(scope="session")
def real_data():
    """``real_data(FOLDER)``: real speech, or a skipped test; ICEFALL_ATTN_DATA says where it is."""

    def find(folder):
        if not (DATA / folder).is_dir():
            pytest.skip(f"no {folder} in {DATA}; set ICEFALL_ATTN_DATA")
        return DATA / folder

    return find

"""A small recipe that sources ``tools/recipe.sh``, for the tests of the scripts."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Dict, Optional

ROOT = Path(__file__).resolve().parents[2]


class Toy:
    """A recipe script in a directory whose name has a space, and what it printed last."""

    def __init__(self, tmp_path: Path, body: str) -> None:
        self.dir = tmp_path / "a recipe"
        self.dir.mkdir()
        self.script = self.dir / "toy.sh"
        self.script.write_text(
            "#!/usr/bin/env bash\n"
            "# A toy.\n"
            f'. "{ROOT}/tools/recipe.sh"\n'
            "common_options 3\n"
            'option nj count 2 "parallel jobs"\n'
            'option word string hello "what to say"\n' + body
        )
        self.script.chmod(0o755)

    def environ(self, **more: str) -> Dict[str, str]:
        """The variables of a run: the head of the logs is given, as finding it out takes a second."""
        report = {"RECIPE_ENVIRONMENT": "python: a toy"}
        return {**os.environ, "PYTHONPATH": str(ROOT), **report, **more}

    def run(
        self, *options: str, cwd: Optional[Path] = None, python: str = sys.executable
    ) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [str(self.script), "--python", python, *options],
            cwd=cwd or self.dir,
            env=self.environ(),
            capture_output=True,
            text=True,
            timeout=60,
        )

    def said(self) -> str:
        """The words that the stages of `STAGES` have written, one letter of its stage before each."""
        path = self.dir / "said"
        return path.read_text() if path.exists() else ""

    def log(self, name: str) -> str:
        return (self.dir / "data" / "log" / f"toy-{name}.log").read_text()


STAGES = """
parse_options "$@"
work_dir=data
say() { echo "$1" >>said; echo "in the log"; }
run_stage 1 first say "a$word" --nj "$nj"
run_stage 2 second say b
run_stage 3 third say c
"""

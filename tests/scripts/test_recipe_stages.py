"""What the recipes' scripts call, with programs in place of the real ones that note their options."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import List

import pytest

from icefall_attn.environment import why_no_k2

sys.path.insert(0, str(Path(__file__).parent))
from toy import ROOT  # noqa: E402

PROGRAM = """#!/usr/bin/env bash
echo "${0##*/} $*" >>called
"""

# The scripts take the programs beside the Python that they are given.
PYTHON = f"""#!/usr/bin/env bash
case $1 in
  *.py) echo "${{1##*/}} ${{*:2}}" >>called ;;
  *) exec '{sys.executable}' "$@" ;;
esac
"""


class Recipe:
    """A copy of a recipe's scripts, with data that is there already."""

    def __init__(self, tmp_path: Path, corpus: str) -> None:
        self.dir = tmp_path / "egs" / corpus / "ASR"
        self.dir.mkdir(parents=True)
        for script in (ROOT / "egs" / corpus / "ASR").glob("*.sh"):
            shutil.copy(script, self.dir)
        (self.dir / "local").mkdir()
        options = ROOT / "egs" / corpus / "ASR/local/options.sh"
        shutil.copy(options, self.dir / "local")
        (tmp_path / "tools").symlink_to(ROOT / "tools")
        self.write("conf/train.yaml", "data/lang/tokens.txt")
        for part in ("train", "dev", "test"):
            self.write(f"data/fbank/{corpus}_cuts_{part}.jsonl.gz")
        self.python = tmp_path / "bin" / "python"
        self.program("python", PYTHON)
        for name in ("train", "decode", "results", "compare"):
            self.program(f"icefall-attn-{name}", PROGRAM)

    def write(self, *names: str) -> None:
        for name in names:
            (self.dir / name).parent.mkdir(parents=True, exist_ok=True)
            (self.dir / name).write_text(name)

    def program(self, name: str, text: str) -> None:
        self.python.parent.mkdir(exist_ok=True)
        path = self.python.with_name(name)
        path.write_text(text)
        path.chmod(0o755)

    def run(self, script: str, *options: str) -> "subprocess.CompletedProcess[str]":
        report = {"RECIPE_ENVIRONMENT": "python: a toy"}
        return subprocess.run(
            [str(self.dir / script), "--python", str(self.python), *options],
            env={**os.environ, "PYTHONPATH": str(ROOT), **report},
            capture_output=True,
            text=True,
            timeout=60,
        )

    def called(self) -> List[str]:
        """The programs with their options that were called since this was asked last."""
        path = self.dir / "called"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines


CORPORA = {
    "librispeech": (
        ["--parts", "train-clean-5 dev-clean-2 test-clean", "--vocab-sizes", "30 60"],
        ["train", "dev", "test-clean"],
        ["lang_bpe_30", "lang_bpe_60"],
    ),
    "aishell": ([], ["train", "dev", "test"], ["lang_char"]),
}


@pytest.mark.parametrize("corpus", CORPORA)
def test_preparation_of_a_large_corpus(tmp_path: Path, corpus: str) -> None:
    """All stages; noise and rooms only if they are wanted, n-grams of a file in place of our own."""
    options, sets, lang_dirs = CORPORA[corpus]
    recipe = Recipe(tmp_path, corpus)
    done = recipe.run("prepare.sh", *options, "--max-bad-share", "0.2")
    assert done.returncode == 0, done.stderr
    called = recipe.called()
    each = len(lang_dirs)
    graphs = 0 if why_no_k2() else each  # left out, and that is said
    assert ("left out, as k2" in done.stdout) == bool(why_no_k2())
    assert [call.split()[0] for call in called] == [
        f"download_{corpus}.py",
        f"prepare_{corpus}.py",
        "compute_fbank.py",
        *["prepare_tokens.py"] * each,
        "train_ngram.py",
        *["compile_lg.py"] * graphs,
        *["validate_data.py"] * each,
        "describe_data.py",
    ]
    assert f"--parts {' '.join(sets)} --perturb train" in called[2]
    assert all("--max-bad-share 0.2" in call for call in called[1:3])
    cuts = " ".join(f"data/fbank/{corpus}_cuts_{part}.jsonl.gz" for part in sets)
    for name in ("compile_lg", "validate_data"):
        made = [c for c in called if c.startswith(name)]
        for call, lang_dir in zip(made, lang_dirs):
            assert f"--lang-dir data/{lang_dir}" in call
    assert f"--cuts {cuts} --lang-dir data/{lang_dirs[0]}" in called[-1]

    arpa = tmp_path / "own.arpa.gz"
    arpa.write_text("a model")
    more = ["--musan", "true", "--rirs", "true", "--arpa", str(arpa)]
    more += ["--max-bad-share", "0.2"]
    done = recipe.run("prepare.sh", *options, *more)
    assert done.returncode == 0, done.stderr
    noise, rooms, *called = recipe.called()
    assert "prepare_noise.py --kind noise --corpus-dir download/musan" in noise
    assert "prepare_noise.py --kind rir --corpus-dir download/RIRS_NOISES" in rooms
    compiled = [call for call in called if call.startswith("compile_lg")]
    assert len(compiled) == graphs
    assert all(f"compile_lg.py --arpa {arpa}" in call for call in compiled)
    # Another model of the same name is noticed; a missing one is refused at once.
    arpa.write_text("another model")
    recipe.run("prepare.sh", *options, *more)
    compiled = [c for c in recipe.called() if c.startswith("compile_lg")]
    assert len(compiled) == graphs
    done = recipe.run("prepare.sh", *options, "--arpa", "nowhere.arpa")
    assert done.returncode == 2 and "--arpa must be a file that exists" in done.stderr
    assert recipe.called() == []


def test_a_run_hands_its_options_on(tmp_path: Path) -> None:
    """Only those that are given: prepare.sh has the same defaults, or its recipe's own."""
    recipe = Recipe(tmp_path, "aishell")
    given = ["--features", "fbank_pitch", "--storage", "none", "--speeds", "0.5"]
    recipe.run("run.sh", "--stop-stage", "1", *given, "--subset-hours", "3")
    called = recipe.called()
    assert "--subset-hours 3 --max-bad-share 0.01" in called[1]
    wanted = "--perturb train --speeds 0.5"
    assert wanted in called[2] and "--features fbank_pitch --storage none" in called[2]
    recipe.run("run.sh", "--stop-stage", "1", "--force", "true")
    assert "--speeds 0.9 1.1" in recipe.called()[2]


@pytest.fixture(params=["an4", "digits"])
def recipe(request: pytest.FixtureRequest, tmp_path: Path) -> Recipe:
    return Recipe(tmp_path, request.param)


TRAIN = "icefall-attn-train --config conf/train.yaml --exp-dir exp"
OLD_RUN = [
    *("config.yaml", "valid-losses.jsonl", "last.pt", "epoch-1.pt", "lang/tokens.txt"),
    *("tensorboard/events", "greedy_search/wer-summary-x.txt"),
]


def test_train(recipe: Recipe) -> None:
    done = recipe.run("train.sh", "--", "--train.max_steps", "3")
    assert done.returncode == 0, done.stderr
    assert recipe.called() == [f"{TRAIN} --train.max_steps 3"]
    assert "skipped" in recipe.run("train.sh", "--", "--train.max_steps", "3").stdout
    assert recipe.called() == []


def test_train_goes_on_where_it_stopped(recipe: Recipe) -> None:
    recipe.write(*(f"exp/{name}" for name in OLD_RUN))
    recipe.run("train.sh")
    assert recipe.called() == [TRAIN]
    assert all((recipe.dir / "exp" / name).is_file() for name in OLD_RUN)


def test_forced_train_starts_anew(recipe: Recipe) -> None:
    recipe.run("train.sh")
    recipe.write(*(f"exp/{name}" for name in OLD_RUN), "exp/notes.txt")
    done = recipe.run("train.sh", "--force", "true")
    assert done.returncode == 0, done.stderr
    assert recipe.called() == [TRAIN, TRAIN]
    (old,) = recipe.dir.glob("exp/old-*")
    assert all((old / name).read_text() == f"exp/{name}" for name in OLD_RUN)
    left = {path.name for path in (recipe.dir / "exp").iterdir()}
    assert left == {".done", "log", "notes.txt", old.name}
    first, second = done.stdout.splitlines()
    assert first == f"train: starts anew; the run before is in exp/{old.name}"
    assert second.startswith("train 1 train ... done in")


@pytest.mark.parametrize("options", [["--stage", "2", "--stop-stage", "2"], []])
def test_forced_train_without_an_old_run(recipe: Recipe, options: List[str]) -> None:
    """Nothing is moved if the stage is left out, and nothing said if nothing is there."""
    if options:
        recipe.write("exp/last.pt")
    done = recipe.run("train.sh", "--force", "true", *options)
    assert done.returncode == 0 and "anew" not in done.stdout
    assert not list(recipe.dir.glob("exp/old-*"))


def test_refusal_of_the_trainer_is_shown_alone(recipe: Recipe) -> None:
    message = (
        "error: exp/last.pt was trained with other options; choose another exp_dir"
    )
    recipe.program(
        "icefall-attn-train", f"#!/bin/sh\necho a log line >&2\n{_fail(message)}"
    )
    done = recipe.run("train.sh")
    assert done.returncode == 1
    assert "FAILED with exit code 1" in done.stdout
    assert done.stderr == f"    {message}\n"


LIST = """# a comment
full --model.encoder.attention.kind full

B1 --train.init_from @full
"""


def test_compare_trains_and_decodes_each_variant_with_each_seed(recipe: Recipe) -> None:
    (recipe.dir / "conf/two.txt").write_text(LIST)
    options = ["--list", str(recipe.dir / "conf/two.txt"), "--seeds", "1 2"]
    options += ["--max-steps", "7", "--methods", "greedy_search", "--avg", "2"]
    done = recipe.run("compare.sh", *options, "--", "--optim.lr", "1")
    assert done.returncode == 0, done.stderr
    calls = recipe.called()
    trained = [call for call in calls if "-train" in call]
    start = "exp-compare/full/seed-"
    expected = [
        f"icefall-attn-train --config conf/train.yaml --exp-dir exp-compare/{name}/seed-{seed} "
        f"--train.seed {seed} --train.max_steps 7 {own} --optim.lr 1"
        for seed in (1, 2)
        for name, own in (
            ("full", "--model.encoder.attention.kind full"),
            ("B1", f"--train.init_from {start}{seed} --train.init_avg 2"),
        )
    ]
    assert trained == expected
    assert len([call for call in calls if "-decode" in call]) == 4
    assert calls[-1].startswith("icefall-attn-compare --exp-dir exp-compare")
    again = recipe.run("compare.sh", *options, "--", "--optim.lr", "1")
    assert again.stdout.count("skipped") == 8
    assert len(recipe.called()) == 1  # the table


def test_compare_refuses_what_it_cannot_do(recipe: Recipe) -> None:
    (recipe.dir / "conf/two.txt").write_text(LIST + "plain\n")  # no options of its own
    options = ["--list", str(recipe.dir / "conf/two.txt")]
    done = recipe.run("compare.sh", *options, "--names", "plain", "--dry-run", "true")
    assert done.returncode == 0 and "plain-42-train" in done.stdout
    done = recipe.run("compare.sh", *options, "--names", "full B7")
    assert done.returncode == 2 and "no variant 'B7', only full B1 plain" in done.stderr
    done = recipe.run("compare.sh", *options, "--baseline", "rsa")
    assert (
        done.returncode == 2 and "--baseline" in done.stderr and "'rsa'" in done.stderr
    )
    done = recipe.run("compare.sh", *options, "--names", "B1")
    assert done.returncode == 1
    assert "B1 starts from full, which is not trained with seed 42" in done.stderr
    assert recipe.called() == []


def _fail(message: str) -> str:
    return f"echo '{message}' >&2; exit 1\n"


def test_decode(recipe: Recipe) -> None:
    recipe.write("exp/config.yaml", "exp/last.pt")
    corpus = recipe.dir.parts[-2]
    cuts = " ".join(
        f"{part}=data/fbank/{corpus}_cuts_{part}.jsonl.gz" for part in ("dev", "test")
    )
    average = {"an4": 3, "digits": 2}[corpus]
    options = ["--methods", "greedy_search", "--", "--unit", "char"]
    for model, words in (
        ([], f"--avg {average} --by valid-loss"),
        (["--avg", "2", "--by", "epoch"], "--avg 2 --by epoch"),
        (["--checkpoint", "last.pt"], "--checkpoint last.pt"),
    ):
        done = recipe.run("decode.sh", *model, *options)
        assert done.returncode == 0, done.stderr
        assert recipe.called() == [
            f"icefall-attn-decode --exp-dir exp {words} --cuts {cuts}"
            " --search.method greedy_search --unit char",
            "icefall-attn-results --exp-dir exp",
        ]


def test_decode_with_a_graph(recipe: Recipe) -> None:
    recipe.write("exp/config.yaml", "exp/last.pt")
    options = ["--methods", "fast_beam_search_nbest fast_beam_search_nbest_LG"]
    done = recipe.run("decode.sh", *options)
    assert done.returncode == 1
    assert "data/lang/LG.pt is missing; local/compile_lg.py makes it" in done.stderr
    recipe.called()
    recipe.write("data/lang/LG.pt")
    done = recipe.run("decode.sh", *options, "--", "--search.ngram_lm_scale", "0.1")
    assert done.returncode == 0, done.stderr
    plain, words, _ = recipe.called()
    assert "--search.graph" not in plain
    assert "_LG --search.graph data/lang/LG.pt --search.ngram_lm_scale 0.1" in words
    recipe.write("data/lang/LG.pt")
    recipe.run("decode.sh", *options, "--", "--search.ngram_lm_scale", "0.1")
    assert len(recipe.called()) == 1  # the table: nothing changed


def test_every_search_has_its_stage(recipe: Recipe) -> None:
    recipe.write("exp/config.yaml", "exp/last.pt", "data/lang/LG.pt")
    methods = ["greedy_search", "modified_beam_search", "fast_beam_search"]
    methods += [f"fast_beam_search_{more}" for more in ("nbest", "LG", "nbest_LG")]
    done = recipe.run("decode.sh", "--methods", " ".join(methods))
    assert done.returncode == 0, done.stderr
    *decoded, _ = recipe.called()
    assert [c.split("--search.method ")[1].split()[0] for c in decoded] == methods


def test_decode_without_a_model(recipe: Recipe) -> None:
    done = recipe.run("decode.sh")
    assert done.returncode == 1
    assert "exp/config.yaml is missing; run ./train.sh first" in done.stderr


def test_run(recipe: Recipe) -> None:
    recipe.write("exp/config.yaml", "exp/last.pt")
    done = recipe.run("run.sh", "--avg", "2", "--", "--train.max_steps", "3")
    assert done.returncode == 0, done.stderr
    called = recipe.called()
    assert f"{TRAIN} --train.max_steps 3" in called
    searches = 2 if why_no_k2() else 3  # graph search is left out, and that is said
    decoded = [c for c in called if "icefall-attn-decode --exp-dir exp --avg 2" in c]
    assert len(decoded) == searches
    assert ("without graph search" in done.stdout) == bool(why_no_k2())
    assert called[-1] == "icefall-attn-results --exp-dir exp"
    assert not any("--overwrite" in call for call in called)


def test_forced_prepare_keeps_nothing(recipe: Recipe) -> None:
    overwriting = {
        "an4": {"compute_fbank.py"},
        "digits": {"compute_fbank.py", "synthesize_digits.py"},
    }[recipe.dir.parts[-2]]
    recipe.run("prepare.sh")
    assert not any("--overwrite" in call for call in recipe.called())
    recipe.run("prepare.sh", "--force", "true")
    called = recipe.called()
    stages = {"an4": 7, "digits": 6}[recipe.dir.parts[-2]]
    assert len(called) == stages
    assert {c.split()[0] for c in called if "--overwrite" in c} == overwriting
    assert recipe.run("prepare.sh").stdout.count("skipped") == stages


def test_graph_of_words(recipe: Recipe) -> None:
    """A recipe may add the stages for the searches with LG; the text is the training set's."""
    corpus = recipe.dir.parts[-2]
    script = recipe.dir / "prepare.sh"
    lines = "lm_stage 8 --unit char\ngraph_stage 9 published.arpa.gz\n"
    script.write_text(script.read_text() + lines)
    done = recipe.run("prepare.sh", "--stage", "8", "--stop-stage", "9")
    assert done.returncode == 0, done.stderr
    ngrams, *graph = recipe.called()
    assert ngrams == (
        f"train_ngram.py --supervisions data/manifests/{corpus}_supervisions_train.jsonl.gz"
        " --output data/lm/3-gram.arpa --unit char"
    )
    compiled = ["compile_lg.py --arpa published.arpa.gz --lang-dir data/lang"]
    assert graph == ([] if why_no_k2() else compiled)

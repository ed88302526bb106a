"""The recipes' scripts refuse what is wrong in one line, before they do anything."""

import re
import subprocess
import sys
from pathlib import Path
from typing import List

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from toy import ROOT, Toy  # noqa: E402

SCRIPTS = sorted(ROOT.glob("egs/*/ASR/*.sh"))
PREPARE = [script for script in SCRIPTS if script.name == "prepare.sh"]


def call(
    script: Path, *options: str, cwd: str = "/"
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(script), *options], cwd=cwd, capture_output=True, text=True, timeout=60
    )


def assert_refused(result: "subprocess.CompletedProcess[str]", *words: str) -> None:
    assert result.returncode == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert "error: " in line
    for word in words:
        assert word in line


def test_all_recipes_are_tried() -> None:
    assert len(SCRIPTS) >= 8 and len(PREPARE) >= 2


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: f"{p.parts[-3]}-{p.stem}")
class TestEveryScript:
    def test_help_lists_the_options(self, script: Path) -> None:
        result = call(script, "--help")
        assert result.returncode == 0 and result.stderr == ""
        for option in ("--stage", "--stop-stage", "--force", "--python"):
            assert f"\n  {option} " in result.stdout
        assert len(result.stdout.splitlines()[0]) > 20  # what it is for

    @pytest.mark.parametrize(
        "options, named",
        [
            (["--no-such-option", "1"], "'--no-such-option'"),
            (["--stages", "1"], "'--stages'"),
            (["positional"], "'positional'"),
            (["--stage", "one"], "'one'"),
            (["--stage", "08"], "'08'"),
            (["--stop-stage"], "--stop-stage needs a value"),
            (["--stage", "--force", "true"], "--stage needs a value"),
            (["--stage=2", "--stop-stage=1"], "--stop-stage 1"),
            (["--force", "yes"], "'yes'"),
            (["--python", "/no/python"], "'/no/python'"),
        ],
        ids=lambda value: value if isinstance(value, str) else None,
    )
    def test_refuses(self, script: Path, options: List[str], named: str) -> None:
        assert_refused(call(script, *options), named)


OPTIONS = {
    "prepare": "nj share",
    "train": "config exp-dir world-size launcher cluster dry-run",
    "decode": "exp-dir sets methods graph avg by epoch checkpoint",
    "run": "nj config exp-dir avg methods world-size launcher cluster dry-run",
    "compare": "list names seeds max-steps config exp-dir results avg methods baseline dry-run",
}
TOKENS = "token-kind vocab-size"
LARGE = "dl-dir subset-hours musan rirs arpa"
# What prepare.sh and run.sh have of the recipe's own, and prepare.sh alone.
MORE = {
    "an4": ("dl-dir", TOKENS),
    "digits": ("train-size dev-size test-size", TOKENS),
    "librispeech": (f"{LARGE} full-libri parts vocab-sizes", ""),
    "aishell": (LARGE, ""),
}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: f"{p.parts[-3]}-{p.stem}")
def test_help_lists_all_options_of_a_script(script: Path) -> None:
    handed_on, alone = MORE[script.parts[-3]]
    own = OPTIONS[script.stem]
    if script.stem in ("prepare", "run"):
        own += f" {handed_on} features storage speeds max-bad-share"
    if script.stem == "prepare":
        own += f" {alone}"
    wanted = {f"--{name}" for name in f"stage stop-stage force python {own}".split()}
    text = call(script, "--help").stdout.split(f"Options of {script.name}:\n")[1]
    entries = [e for e in re.split(r"\n?^  (?=--)", text, flags=re.MULTILINE) if e]
    listed = {entry.split()[0] for entry in entries}
    passes_on = set() if script.stem == "prepare" else {"--"}
    assert listed == wanted | passes_on
    # Every one of them says what it is for.
    assert all(len(entry.split()) >= 4 for entry in entries)
    # Names on the left, what is said of them in a column of its own.
    for line in text.splitlines():
        assert len(line) <= 101 and (line.startswith("  --") or line[:29].isspace())


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "many", ""])
@pytest.mark.parametrize("script", PREPARE, ids=lambda p: p.parts[-3])
def test_number_of_jobs(script: Path, value: str) -> None:
    assert_refused(call(script, "--nj", value), "--nj", f"'{value}'")


@pytest.mark.parametrize("script", PREPARE, ids=lambda p: p.parts[-3])
def test_choices_of_the_preparation(script: Path) -> None:
    assert_refused(call(script, "--speeds", "0.9 fast"), "'0.9 fast'")
    if "token-kind" in MORE[script.parts[-3]][1]:
        assert_refused(call(script, "--token-kind", "word"), "'word'", "char|bpe")
    assert_refused(call(script, "--features", "mfcc"), "'mfcc'", "fbank|fbank_pitch")
    assert_refused(call(script, "--storage", "ark"), "'ark'", "lilcom|numpy|none")
    assert_refused(call(script, "--", "--more", "1"), "'--more'")


@pytest.mark.parametrize("corpus", ["digits", "an4"])
def test_files_and_searches(corpus: str) -> None:
    recipe = ROOT / "egs" / corpus / "ASR"
    assert_refused(call(recipe / "train.sh", "--config", "no such.yaml"), "such.yaml'")
    assert_refused(
        call(recipe / "decode.sh", "--methods", "greedy_search viterbi"), "viterbi'"
    )
    assert_refused(call(recipe / "decode.sh", "--methods", ""), "--methods")
    assert_refused(call(recipe / "decode.sh", "--by", "wer"), "'wer'")
    for more in (["--avg", "5"], ["--by", "epoch"]):
        options = [*more, "--checkpoint", "last.pt"]
        assert_refused(call(recipe / "decode.sh", *options), "--checkpoint", more[0])


def test_paths_are_the_callers(tmp_path: Path) -> None:
    toy = Toy(
        tmp_path,
        'option exp-dir path exp ""\noption config file toy.sh ""\n'
        'pass_on "more"\nparse_options "$@"\n'
        'printf "%s\\n" "$exp_dir" "$config" "${extra[@]}"\n',
    )
    (tmp_path / "my config").write_text("")

    def said(*options: str, cwd: Path) -> List[str]:
        return toy.run(*options, cwd=cwd).stdout.splitlines()

    assert said("--exp-dir", "x", cwd=toy.dir) == ["x", "toy.sh"]
    assert said("--exp-dir", "a recipe/x", cwd=tmp_path) == ["x", "toy.sh"]
    assert said("--exp-dir", "x", "--config", "my config", cwd=tmp_path) == [
        f"{tmp_path}/x",
        f"{tmp_path}/my config",
    ]
    assert said("--", "--lr", "1e-3 x", cwd=tmp_path)[2:] == ["--lr", "1e-3 x"]


def test_without_an_environment(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    toy = Toy(tmp_path, 'parse_options "$@"; work_dir=data\nrun_stage 1 one true\n')
    toy.environ = lambda: {"PATH": "/usr/bin:/bin"}  # type: ignore[method-assign]
    result = toy.run(python=str(bare / "bin" / "python"))
    assert result.returncode == 1
    assert "run tools/setup_env.sh" in result.stderr

"""The first command of the README, small: speech, features, tokens, training, three searches, a table."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from icefall_attn.environment import why_no_k2

pytest.importorskip("espeakng_loader", reason="the voices need espeakng-loader")
METHODS = ["greedy_search", "modified_beam_search"]
if not why_no_k2():
    METHODS.append("fast_beam_search")
SMALL = """
--model.encoder.dim=16 --model.encoder.num_layers=1 --model.encoder.feed_forward_dim=32
--model.encoder.subsampling_channels=4 --model.predictor.dim=16 --model.joiner_dim=16
--train.max_steps=30 --train.log_every=10 --optim.warm_steps=5
"""


@pytest.fixture(scope="module")
def first_run(run):
    sizes = ["--train-size", "60", "--dev-size", "8", "--test-size", "8", "--avg", "1"]
    return run("digits", "run.sh", *sizes, "--", *SMALL.split())


def words_wrong(ref, hyp):
    """Edit distance, the plain way."""
    row = list(range(len(hyp) + 1))
    for i, word in enumerate(ref, 1):
        previous, row[0] = row[0], i
        for j, other in enumerate(hyp, 1):
            previous, row[j] = row[j], min(
                row[j] + 1, row[j - 1] + 1, previous + (word != other)
            )
    return row[-1]


def test_from_nothing_to_a_table(first_run, checkout):
    assert first_run.returncode == 0, first_run.stdout + first_run.stderr
    assert ("without graph search" in first_run.stdout) == bool(why_no_k2())
    table = first_run.stdout.splitlines()[-2 - 2 * len(METHODS) :]
    for method in METHODS:
        rows = [line for line in table if method in line]
        assert len(rows) == 2 and {"dev", "test"} <= set(" ".join(rows).split())
    exp = checkout / "egs/digits/ASR/exp"
    for name in ("config.yaml", "lang/tokens.txt", "last.pt", "best-valid-loss.pt"):
        assert (exp / name).is_file()
    log = (exp / "log/train-train.log").read_text()
    for fact in ("command:", "started:", "torch:", "k2:", "exit code"):
        assert fact in log


@pytest.mark.parametrize("method", METHODS)
def test_reports_agree_with_each_other(first_run, checkout, method):
    results = checkout / "egs/digits/ASR/exp" / method
    (recogs,) = results.glob("recogs-test-*.txt")
    pairs = {"ref": {}, "hyp": {}}
    for line in recogs.read_text().splitlines():
        name, rest = line.split(":\t")
        side, words = rest.split("=", 1)
        pairs[side][name] = ast.literal_eval(words)
    assert len(pairs["ref"]) == 8
    total = sum(len(words) for words in pairs["ref"].values())
    wrong = sum(
        words_wrong(pairs["ref"][name], pairs["hyp"][name]) for name in pairs["ref"]
    )
    (summary,) = results.glob("wer-summary-test-*.txt")
    assert f"{100 * wrong / total:.2f}" in summary.read_text()
    (errs,) = results.glob("errs-test-*.txt")
    assert f"over {total} reference words" in errs.read_text()
    (nbest,) = results.glob("nbest-test-*.jsonl")
    for line in nbest.read_text().splitlines():
        entry = json.loads(line)
        assert entry["hyps"][0]["text"].split() == pairs["hyp"][entry["id"]]


def test_the_second_run_does_nothing_again(first_run, run):
    sizes = ["--train-size", "60", "--dev-size", "8", "--test-size", "8", "--avg", "1"]
    again = run("digits", "run.sh", *sizes, "--", *SMALL.split())
    assert again.returncode == 0
    stages = [
        line
        for line in again.stdout.splitlines()
        if line.startswith(("prepare ", "train ", "decode "))
    ]
    assert len(stages) == 7 + len(METHODS) and all(
        "done before, skipped" in line for line in stages
    )


def test_a_trained_model_transcribes_a_file(first_run, checkout):
    recipe = checkout / "egs/digits/ASR"
    audio = sorted((recipe / "data/corpus/test").glob("*.wav"))[0]
    done = subprocess.run(
        [
            str(Path(sys.executable).parent / "icefall-attn-transcribe"),
            "--exp-dir",
            str(recipe / "exp"),
            str(audio),
        ],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{audio}\t")


def test_mechanisms_are_compared_in_pieces(first_run, checkout, run):
    """Two variants, one of which starts from the other; the second call adds to the first one's table."""
    options = ["--avg", "1", "--max-steps", "12", "--methods", "greedy_search"]
    tiny = [word for word in SMALL.split() if "max_steps" not in word]
    first = run("digits", "compare.sh", "--names", "full", *options, "--", *tiny)
    assert first.returncode == 0, first.stdout + first.stderr
    second = run("digits", "compare.sh", "--names", "full E1", *options, "--", *tiny)
    assert second.returncode == 0, second.stdout + second.stderr
    assert second.stdout.count("done before, skipped") == 2
    results = checkout / "egs/digits/ASR/results"
    records = [
        json.loads(line)
        for line in (results / "compare.jsonl").read_text().splitlines()
    ]
    assert [(r["name"], r["init"], r["steps"]) for r in records] == [
        ("full", "", 12),
        ("E1", "full", 12),
    ]
    for record in records:
        assert set(record["rates"]) == {"dev", "test"}
        assert record["seconds"] > 0 and record["memory_gib"] > 0.1
        assert record["machine"].endswith("cores usable")
        assert record["multiply_adds"] > 1e6 and record["parameters"] > 1e4
    table = (results / "compare.md").read_text()
    assert "| full |" in table and "| E1 | 42 | 12 after full |" in table
    assert (results / "compare.png").read_bytes().startswith(b"\x89PNG")

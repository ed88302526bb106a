"""The sweep over epochs and averages: what icefall-attn-decode finds, decoded once."""

import os
import re

import pytest

from icefall_attn.bin import decode, sweep, train
from icefall_attn.errors import UserError
from icefall_attn.transducer.model import Transducer

METHODS = ["greedy_search", "modified_beam_search"]


@pytest.fixture
def trained(train_options, tmp_path):
    exp = tmp_path / "exp"
    options = ["--train.num_epochs", "3", "--train.max_steps", "0"]
    train.main([*train_options, "--exp-dir", str(exp), *options])
    return exp


def run(capsys, exp, corpus_dir, *options):
    cuts = [f"{name}={corpus_dir / name}.jsonl.gz" for name in ("more", "train")]
    arguments = ["--exp-dir", str(exp), "--num-workers", "0", "--cuts", *cuts]
    sweep.main([*arguments, "--methods", *METHODS, *options])
    return capsys.readouterr().out


@pytest.fixture
def encoded(monkeypatch):
    """Grows by one whenever a batch is encoded."""
    calls, encode = [], Transducer.encode

    def counted(*arguments):
        calls.append(1)
        return encode(*arguments)

    monkeypatch.setattr(Transducer, "encode", counted)
    return calls


def test_all_points_as_the_decoding_program_has_them(
    trained, corpus_dir, capsys, encoded
):
    encoded.clear()
    text = run(capsys, trained, corpus_dir, "--avg", "1", "2")
    assert text.count("epoch-3_avg-2, more, greedy_search:") == 1
    assert len(re.findall(r"^epoch-", text, re.M)) == 5 * 2 * 2  # points, sets, methods
    results = {m: files(trained / m) for m in METHODS}
    assert len(results["greedy_search"]) == 5 * 2 * 4

    # both searches together encode as much as one of them alone
    together = len(encoded)
    for path in (trained / METHODS[1]).iterdir():
        path.unlink()
    encoded.clear()
    run(capsys, trained, corpus_dir, "--avg", "1", "2")
    assert len(encoded) == together > 0
    assert {m: files(trained / m) for m in METHODS} == results

    # and the same files by the other program
    for epoch, avg in ((2, 1), (3, 2)):
        for method in METHODS:
            cuts = f"more={corpus_dir / 'more.jsonl.gz'}"
            decode.main(
                ["--exp-dir", str(trained), "--by", "epoch", "--epoch", str(epoch)]
                + ["--avg", str(avg), "--cuts", cuts, "--search.method", method]
            )
    assert {m: files(trained / m) for m in METHODS} == results


def files(directory):
    """Contents of result files, without the time that searching took."""
    return {
        path.name: re.sub(r"\t0\.\d{4}\t", "\t", path.read_text())
        for path in directory.iterdir()
        if not path.name.startswith("log-")
    }


def test_goes_on_where_it_was_stopped(trained, corpus_dir, capsys):
    run(capsys, trained, corpus_dir, "--avg", "1")
    decoded = lambda text: re.findall(r"^(epoch-\S+), (\w+), (\w+):", text, re.M)
    again = run(capsys, trained, corpus_dir, "--avg", "1")
    assert decoded(again) == [] and "more chooses --by epoch --epoch" in again
    (summary,) = trained.glob("greedy_search/wer-summary-train-epoch-2_avg-1*")
    summary.unlink()
    again = run(capsys, trained, corpus_dir, "--avg", "1")
    assert decoded(again) == [("epoch-2_avg-1", "train", "greedy_search")]
    # trained anew: what the old model did is no longer true
    os.utime(trained / "epoch-3.pt")
    again = run(capsys, trained, corpus_dir, "--avg", "1")
    assert {point for point, _, _ in decoded(again)} == {"epoch-3_avg-1"}
    assert len(decoded(again)) == 4


def test_choice():
    point = sweep.Point
    table = {point(1, 1): 9.0, point(2, 1): 4.0, point(3, 1): 5.0, point(3, 2): 4.0}
    assert sweep.best_point(table) == point(3, 2)
    assert sweep.as_markdown(table, point(3, 2)).splitlines() == [
        "| last epoch | avg 1 | avg 2 |",
        "|---|---|---|",
        "| 1 | 9.00 |  |",
        "| 2 | 4.00 |  |",
        "| 3 | 5.00 | **4.00** |",
    ]


def test_deleted_epochs(trained, corpus_dir, capsys):
    (trained / "epoch-1.pt").unlink()
    text = run(capsys, trained, corpus_dir, "--avg", "1", "2")
    assert "epoch-3_avg-2, more" in text and "epoch-2_avg-2" not in text

    def refused(words, *options):
        with pytest.raises(UserError, match=words):
            run(capsys, trained, corpus_dir, *options)

    refused("no longer has epoch-1.pt", "--epochs", "1")
    refused("has no epoch 7, only 1, 2, 3", "--epochs", "7")
    refused("too few to average 9", "--avg", "9")
    refused("--avg must be at least 1, not 0", "--avg", "0")
    refused("above 0", "--max-duration", "0")
    with pytest.raises(UserError, match="no experiment directory none"):
        run(capsys, "none", corpus_dir)

"""The decoding program on a model that says what the features say."""

import json
import logging

import pytest
import torch

from icefall_attn.bin import decode, results
from icefall_attn.data.batch import Batch
from icefall_attn.data.tokenizer import CharTokenizer
from icefall_attn.errors import UserError
from icefall_attn.files import temporary_path

LETTERS = ["<blk>", "<sos/eos>", "<unk>", "A", "B"]

# id, reference, and the tokens that the features hold (0 is blank, 3 is A, 4 is B)
UTTERANCES = [
    ("u1", "A B A", [3, 4, 3]),
    ("u2", "A B", [3, 0, 0]),
    ("u3", "B", [0, 4, 3, 4]),
    ("u4", "", []),
    ("u5", "A", [4]),
]


def make_batch(utterances):
    longest = max(4 * len(tokens) for _, _, tokens in utterances)
    features = torch.zeros(len(utterances), longest, 80)
    for row, (_, _, tokens) in zip(features, utterances):
        for t, token in enumerate(tokens):
            row[4 * t, 0] = token
    return Batch(
        ids=[id for id, _, _ in utterances],
        features=features,
        feature_lengths=torch.tensor([4 * len(tokens) for _, _, tokens in utterances]),
        texts=[text for _, text, _ in utterances],
        tokens=[[] for _ in utterances],
        durations=[2.0 for _ in utterances],
    )


@pytest.fixture(autouse=True)
def loaders(monkeypatch):
    """Sets by the name of their file; what was asked for."""
    asked = []
    content = {
        "test.jsonl": [make_batch(UTTERANCES[:3]), make_batch(UTTERANCES[3:])],
        "dev.jsonl": [make_batch(UTTERANCES[:1])],
    }

    def eval_loader(path, data, tokenizer, max_duration):
        asked.append((path, data, max_duration))
        return content[path.rsplit("/", 1)[-1]]

    monkeypatch.setattr("icefall_attn.data.loader.eval_loader", eval_loader)
    yield asked
    logging.basicConfig(force=True)  # closes the log files


def run(tmp_path, *options, sets=("test",)):
    for name in sets:
        (tmp_path / f"{name}.jsonl").touch()
    cuts = [f"{name}={tmp_path / name}.jsonl" for name in sets]
    decode.main(["--exp-dir", str(tmp_path / "exp"), "--cuts", *cuts, *options])


def test_console_line_and_files(tmp_path, experiment, capsys):
    """u1 right; u2: one deletion; u3: 2 insertions; u5: a substitution; N = 7."""
    run(tmp_path)
    line = "[test-greedy_search] %WER 57.14% [4 / 7, 2 ins, 1 del, 1 sub ]"
    assert capsys.readouterr().out == line + "\n"
    directory = tmp_path / "exp" / "greedy_search"
    tail = "test-best_avg-5_max-sym-per-frame-1"
    names = {path.name for path in directory.iterdir()}
    log = next(name for name in names if name.startswith("log-decode-best_avg-5"))
    assert names == {
        log,
        f"recogs-{tail}.txt",
        f"errs-{tail}.txt",
        f"wer-summary-{tail}.txt",
        f"nbest-{tail}.jsonl",
    }
    text = (directory / log).read_text()
    assert "torch: " in text and line in text and "real-time factor" in text
    recogs = (directory / f"recogs-{tail}.txt").read_text().splitlines()
    assert recogs[:2] == ["u1:\tref=['A', 'B', 'A']", "u1:\thyp=['A', 'B', 'A']"]
    nbest = (directory / f"nbest-{tail}.jsonl").read_text().splitlines()
    third = json.loads(nbest[2])
    assert third["hyps"][0]["pieces"] == ["B", "A", "B"]
    assert third["hyps"][0]["times"] == [0.04, 0.08, 0.12]


@pytest.mark.parametrize(
    "method", ["modified_beam_search", "fast_beam_search", "fast_beam_search_nbest"]
)
def test_other_methods_agree_on_a_certain_model(tmp_path, experiment, capsys, method):
    if method.startswith("fast_beam_search"):
        pytest.importorskip("k2")
    run(tmp_path, "--search.method", method)
    assert f"[test-{method}] %WER 57.14% [4 / 7," in capsys.readouterr().out


@pytest.mark.parametrize("method", ["fast_beam_search_LG", "fast_beam_search_nbest_LG"])
def test_words_of_a_graph(tmp_path, experiment, capsys, method):
    """The features say "A B A" and more; only sentences of the words AB and B are allowed."""
    pytest.importorskip("k2")
    pytest.importorskip("kaldilm")
    from icefall_attn.decoding.lexicon_graph import compile_word_graph

    (tmp_path / "lm.arpa").write_text(
        "\\data\\\nngram 1=4\n\n\\1-grams:\n-0.5 </s>\n-99 <s>\n-0.5 AB\n-0.5 B\n\n\\end\\\n"
    )
    graph = compile_word_graph(tmp_path / "lm.arpa", CharTokenizer(LETTERS))
    graph.save(tmp_path / "LG.pt")
    options = ["--search.method", method, "--search.graph", str(tmp_path / "LG.pt")]
    run(tmp_path, *options, "--search.fast_beam", "200")
    assert f"[test-{method}] %WER" in capsys.readouterr().out
    (nbest,) = (tmp_path / "exp" / method).glob("nbest-*_ngram-lm-scale-0.01.jsonl")
    found = [json.loads(line)["hyps"][0] for line in nbest.read_text().splitlines()]
    assert found[2]["words"] == ["B", "AB"] and found[2]["text"] == "B A B"
    assert found[3]["words"] == [] and found[3]["text"] == ""
    with pytest.raises(UserError, match="there is no graph none.pt"):
        run(tmp_path, "--search.method", method, "--search.graph", "none.pt")


def test_several_sets_and_the_table(tmp_path, experiment, capsys):
    run(tmp_path, sets=["test", "dev"])
    run(tmp_path, "--search.method=modified_beam_search", "--search.beam_size=8")
    assert "[dev-greedy_search] %WER 0.00% [0 / 3," in capsys.readouterr().out
    results.main(["--exp-dir", str(tmp_path / "exp")])
    _, header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == results._HEADER
    cells = [row.split() for row in rows]
    assert [row[:4] for row in cells] == [
        ["dev", "greedy_search", "best_avg-5", "max-sym-per-frame-1"],
        ["test", "greedy_search", "best_avg-5", "max-sym-per-frame-1"],
        ["test", "modified_beam_search", "best_avg-5", "beam-size-8"],
    ]
    assert cells[1][4:10] == ["WER", "57.14%", "2", "1", "1", "7"]
    assert len({len(row) for row in [header, *rows]}) == 1  # aligned


def test_characters(tmp_path, experiment, capsys):
    run(tmp_path, "--unit", "char")
    assert "%CER 57.14%" in capsys.readouterr().out


def test_batch_too_large_is_halved(tmp_path, experiment, capsys):
    experiment.model.limit = 1
    run(tmp_path)
    assert "%WER 57.14% [4 / 7," in capsys.readouterr().out
    assert experiment.model.batch_sizes == [3, 1, 2, 1, 1, 2, 1, 1]


def test_utterance_too_large_counts_as_deleted(tmp_path, experiment, capsys):
    experiment.model.limit = 0
    run(tmp_path)
    captured = capsys.readouterr()
    assert "%WER 100.00% [7 / 7, 0 ins, 7 del, 0 sub ]" in captured.out
    assert "5 utterances have no hypothesis" in captured.err


def test_other_errors_are_not_swallowed(tmp_path, experiment, monkeypatch):
    def encode(features, lengths):
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(experiment.model, "encode", encode)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        run(tmp_path)


def test_options_reach_the_library(tmp_path, experiment, loaders):
    run(tmp_path, "--avg", "3", "--by=epoch", "--max-duration=77", "--num-workers=1")
    assert experiment.asked == (str(tmp_path / "exp"), 3, "epoch", None, None)
    ((_, data, max_duration),) = loaders
    assert (data.num_workers, max_duration) == (1, 77.0)


def test_one_checkpoint(tmp_path, experiment):
    run(tmp_path, "--checkpoint", "last.pt")
    assert experiment.asked == (str(tmp_path / "exp"), 1, "valid-loss", "last.pt", None)
    run(tmp_path)
    assert experiment.asked == (str(tmp_path / "exp"), 1, "valid-loss", None, None)


def test_progress_bar_in_a_recipe(tmp_path, experiment, capsys, monkeypatch):
    run(tmp_path)
    assert "100%" not in capsys.readouterr().err
    monkeypatch.setenv("ICEFALL_ATTN_PROGRESS", "1")
    run(tmp_path)
    assert "test: 100%" in capsys.readouterr().err


def test_leftovers_of_a_killed_run_are_removed(tmp_path, experiment, monkeypatch):
    result = tmp_path / "exp" / "greedy_search" / "recogs-test.txt"
    with monkeypatch.context() as patch:
        patch.setattr("os.getpid", lambda: 2**40)  # no process has this number
        leftover = temporary_path(result)
    leftover.parent.mkdir(parents=True)
    leftover.touch()
    run(tmp_path)
    assert not leftover.exists()


def test_same_id_twice_is_an_error(tmp_path, experiment, monkeypatch):
    batches = [make_batch(UTTERANCES[:1])] * 2
    monkeypatch.setattr("icefall_attn.data.loader.eval_loader", lambda *_: batches)
    with pytest.raises(UserError, match="utterance 'u1' is in set 'test' twice"):
        run(tmp_path)


@pytest.mark.parametrize(
    "options, message",
    [
        (["--search.method", "magic"], "magic"),
        (["--search.beam_size", "0"], "search.beam_size must be at least 1, not 0"),
        (["--no-such-option", "1"], "no-such-option"),
        (["--avg", "many"], "many"),
        (["--unit", "phone"], "phone"),
        (["--device", "abacus"], "device 'abacus' cannot be used"),
        (["--max-duration", "0"], "--max-duration must be above 0, not 0.0"),
        (["--max-duration", "-5"], "--max-duration must be above 0, not -5.0"),
        (
            ["--checkpoint", "x/last.pt"],
            "a file name inside --exp-dir, not 'x/last.pt'",
        ),
        (
            ["--checkpoint", "/x/last.pt"],
            "a file name inside --exp-dir, not '/x/last.pt'",
        ),
        (["--checkpoint", "last.pt", "--avg", "1"], "leave out --avg 1"),
        (["--checkpoint", "last.pt", "--epoch", "1"], "leave out --epoch 1"),
        (["--by", "epoch", "--checkpoint=last.pt"], "leave out --by epoch"),
    ],
)
def test_bad_options_are_one_line(tmp_path, experiment, options, message):
    with pytest.raises(UserError) as error:
        run(tmp_path, *options)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "value, message",
    [
        ("test.jsonl", "--cuts takes NAME=FILE, not 'test.jsonl'"),
        ("a/b=x.jsonl", "set name 'a/b'"),
        ("test=/no/such/file.jsonl", "cuts of set 'test': no file /no/such/file.jsonl"),
    ],
)
def test_bad_sets(value, message):
    with pytest.raises(UserError, match=message):
        decode.main(["--exp-dir", "exp", "--cuts", value])


def test_set_given_twice(tmp_path, experiment):
    with pytest.raises(UserError, match="set 'test' is given twice"):
        run(tmp_path, sets=["test", "test"])


def test_exit_code(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["icefall-attn-decode", "--cuts", "x"])
    with pytest.raises(SystemExit) as stop:
        decode.cli()
    assert stop.value.code not in (0, None)


def test_table_of_an_empty_directory(tmp_path):
    with pytest.raises(UserError, match="no results in"):
        results.main(["--exp-dir", str(tmp_path)])
    with pytest.raises(UserError, match="no directory"):
        results.main(["--exp-dir", str(tmp_path / "nowhere")])


@pytest.mark.parametrize(
    "options, message",
    [
        (["--streaming=true", "--simulate-streaming=true"], "do not go together"),
        (["--streaming=true", "--piece=5"], "--piece must be 10 ms or more, not 5"),
        (["--streaming=perhaps"], "perhaps"),
        (
            ["--streaming=true", "--search.method=fast_beam_search"],
            "fast_beam_search needs whole utterances",
        ),
    ],
)
def test_streams_that_cannot_be(tmp_path, experiment, options, message):
    with pytest.raises(UserError, match=message):
        run(tmp_path, *options)

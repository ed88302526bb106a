"""The files, read back as a user's script would."""

import ast
import json

import pytest

from icefall_attn.decoding import Hypothesis, SearchConfig
from icefall_attn.errors import UserError
from icefall_attn.scoring import (
    Summary,
    read_summary,
    result_paths,
    score,
    write_errs,
    write_nbest,
    write_recogs,
    write_summary,
)

REFERENCES = {"u1": "A B C", "u2": "A D'S", "u3": "", "u4": "B"}
HYPOTHESES = {"u1": "A X C C", "u2": "A", "u3": "X"}


class Letters:
    tokens = ["<blk>", "<sos/eos>", "<unk>", "A", "B", "▁"]

    def decode(self, ids):
        return "".join(self.tokens[i] for i in ids).replace("▁", " ")


def test_recogs(tmp_path):
    write_recogs(tmp_path / "recogs.txt", score(REFERENCES, HYPOTHESES))
    lines = (tmp_path / "recogs.txt").read_text().splitlines()
    assert len(lines) == 2 * len(REFERENCES)
    assert lines[0] == "u1:\tref=['A', 'B', 'C']"
    assert lines[1] == "u1:\thyp=['A', 'X', 'C', 'C']"
    for line, (id, text) in zip(lines[::2], REFERENCES.items()):
        name, value = line.split("\tref=")
        assert (name, ast.literal_eval(value)) == (f"{id}:", text.split())
    assert lines[7] == "u4:\thyp=[]"


def test_errs(tmp_path):
    write_errs(tmp_path / "errs.txt", score(REFERENCES, HYPOTHESES))
    text = (tmp_path / "errs.txt").read_text()
    head, details, subs, dels, ins, words = text.split("\n\n")
    assert head.splitlines() == [
        "%WER = 83.33",
        "Errors: 2 insertions, 2 deletions, 1 substitutions, over 6 reference words "
        "(3 correct)",
        "Missing: 1 utterances have no hypothesis and count as deleted: u4",
    ]
    assert details.splitlines()[0].startswith("PER-UTT DETAILS:")
    first = details.splitlines()[1]
    # Which of the two Cs is the inserted one is the aligner's choice.
    assert first in ("u1:\tA (B->X) C (*->C)", "u1:\tA (B->X) (*->C) C")
    assert details.splitlines()[2:] == ["u2:\tA (D'S->*)", "u3:\t(*->X)", "u4:\t(B->*)"]
    assert subs.splitlines()[1:] == ["1   B -> X"]
    assert dels.splitlines()[1:] == ["1   B", "1   D'S"]
    assert ins.splitlines()[1:] == ["1   C", "1   X"]
    assert words.splitlines()[0] == (
        "PER-WORD STATS: word  corr tot_errs count_in_ref count_in_hyp"
    )
    assert words.splitlines()[1:] == [
        "B   0 2 2 0",
        "X   0 2 0 2",
        "C   1 1 1 2",
        "D'S   0 1 1 0",
        "A   2 0 2 2",
    ]


def test_summary_round_trip(tmp_path):
    line = Summary(
        "beam-size-4", 5.3, 5, 9, 27, 773, 0, 0.0123, "word", "test", "best_avg-5"
    )
    path = tmp_path / "wer-summary.txt"
    write_summary(path, [line])
    first, second = path.read_text().splitlines()
    assert first.split("\t")[:2] == ["settings", "WER"]
    assert second.split("\t")[:2] == ["beam-size-4", "5.30"]
    assert read_summary(path) == [line]


def test_foreign_summary_is_refused(tmp_path):
    path = tmp_path / "wer-summary-x.txt"
    path.write_text("settings\tWER\ngreedy_search\t2.62\n")
    with pytest.raises(UserError, match="was not written by"):
        read_summary(path)


def test_nbest(tmp_path):
    hyps = {"u": [Hypothesis([3, 5, 4], [0, 7, 25], -1.5), Hypothesis([], [], -2.0)]}
    hyps["u"].append(Hypothesis([3], [1], -3.0, ["A"]))
    write_nbest(tmp_path / "n.jsonl", {"u": "A B", "v": "B"}, hyps, Letters())
    first, second = map(json.loads, (tmp_path / "n.jsonl").read_text().splitlines())
    assert (first["id"], first["ref"]) == ("u", "A B")
    assert first["hyps"][0] == {
        "text": "A B",
        "score": -1.5,
        "tokens": [3, 5, 4],
        "pieces": ["A", "▁", "B"],
        "times": [0.0, 0.28, 1.0],
    }
    assert first["hyps"][1]["text"] == ""
    assert first["hyps"][2]["words"] == ["A"]
    assert second == {"id": "v", "ref": "B", "hyps": []}


def test_names():
    paths = result_paths("exp", "test-clean", "epoch-30_avg-5", SearchConfig())
    tail = "test-clean-epoch-30_avg-5_max-sym-per-frame-1"
    assert str(paths.recogs) == f"exp/greedy_search/recogs-{tail}.txt"
    assert str(paths.errs) == f"exp/greedy_search/errs-{tail}.txt"
    assert str(paths.summary) == f"exp/greedy_search/wer-summary-{tail}.txt"
    assert str(paths.nbest) == f"exp/greedy_search/nbest-{tail}.jsonl"


def test_names_of_a_search_of_sampled_words():
    config = SearchConfig("fast_beam_search_nbest_LG", length_norm=False)
    path = result_paths("exp", "test", "best_avg-5", config).summary
    assert str(path) == (
        "exp/fast_beam_search_nbest_LG/wer-summary-test-best_avg-5_beam-20.0_max-contexts-8"
        "_max-states-64_nbest-scale-0.5_num-paths-200_ngram-lm-scale-0.01.txt"
    )


def test_names_differ_where_results_may():
    configs = [
        SearchConfig(),
        SearchConfig(max_symbols_per_frame=3),
        SearchConfig("modified_beam_search"),
        SearchConfig("modified_beam_search", beam_size=8),
        SearchConfig("modified_beam_search", length_norm=False),
        SearchConfig("fast_beam_search"),
        SearchConfig("fast_beam_search", history=3),
        SearchConfig("fast_beam_search", fast_beam=4.0),
        SearchConfig("fast_beam_search", max_contexts=4),
        SearchConfig("fast_beam_search", max_states=8),
        SearchConfig("fast_beam_search_nbest"),
        SearchConfig("fast_beam_search_nbest", num_paths=100),
        SearchConfig("fast_beam_search_nbest", nbest_scale=0.3),
        SearchConfig("fast_beam_search_LG"),
        SearchConfig("fast_beam_search_LG", ngram_lm_scale=0.1),
        SearchConfig("fast_beam_search_nbest_LG"),
        SearchConfig("fast_beam_search_nbest_LG", ngram_lm_scale=0.1),
        SearchConfig("fast_beam_search_nbest_LG", nbest_scale=0.3),
    ]
    names = {result_paths("exp", "test", "best", config).errs for config in configs}
    assert len(names) == len(configs)

"""LG against the ARPA file that it is made from, and searches through it against enumeration."""

import itertools
import logging
import math
from collections import defaultdict
from dataclasses import replace

import pytest
import torch
from arpa_model import ArpaModel
from decoding_helpers import (
    TinyTransducer,
    enumerate_alignments,
    labels,
    random_batch,
)

from icefall_attn.data.tokenizer import CharTokenizer, load_tokenizer, train_bpe
from icefall_attn.decoding import SearchConfig, search, word_graph
from icefall_attn.decoding.lexicon_graph import compile_word_graph, disambiguate
from icefall_attn.decoding.word_graph import load_word_graph
from icefall_attn.errors import UserError
from icefall_attn.ngram import count_ngrams, kneser_ney, write_arpa

k2 = pytest.importorskip("k2")
pytest.importorskip("kaldilm")

SPECIAL = ["<blk>", "<sos/eos>", "<unk>"]
SPACED = CharTokenizer([*SPECIAL, "▁", "a", "b"])
JOINED = CharTokenizer([*SPECIAL, "a", "b"])
#: Words that begin like others, and, without spaces, several ways to divide a text.
TEXT = ["a b", "ab a", "b ab", "ab", "ab a b", "ba", "a", "", "b a ab", "a b", "c ab"]
CPU = torch.device("cpu")
EXACT = SearchConfig(
    fast_beam=1e4,
    max_contexts=10000,
    max_states=10000,
    history=6,
    nbest=1000,
    num_paths=20000,
    nbest_scale=0.1,
    ngram_lm_scale=0.7,
)


def make_graph(tmp_path, tokenizer, text=TEXT, order=2):
    """The saved graph and the model that it stands for."""
    arpa, path = tmp_path / "lm.arpa", tmp_path / "LG.pt"
    words, orders = count_ngrams((line.split() for line in text), order)
    write_arpa(arpa, words, orders, kneser_ney(orders))
    compile_word_graph(arpa, tokenizer).save(path)
    return str(path), ArpaModel(arpa)


def walk(graph, tokens):
    """The best score of each word sequence whose tokens are given, by reading the arcs."""
    scores = graph.arcs[:, 3].contiguous().view(torch.float32).tolist()
    final = int(graph.arcs[:, 1].max())
    leaving = defaultdict(list)
    for index, (source, target, label, _) in enumerate(graph.arcs.tolist()):
        said = graph.word_ids[graph.word_splits[index] : graph.word_splits[index + 1]]
        words = tuple(graph.words[id] for id in said)
        leaving[source, label].append((target, scores[index], words))
    ways = {(0, ()): 0.0}
    for token in (*tokens, -1):
        following = {}
        for (state, words), score in ways.items():
            for target, more, said in leaving[state, token]:
                key = (target, words + said)
                following[key] = max(score + more, following.get(key, -math.inf))
        ways = following
    assert all(state == final for state, _ in ways)
    return {words: score for (_, words), score in ways.items()}


def every_sentence(vocabulary, longest):
    for length in range(longest + 1):
        yield from itertools.product(vocabulary, repeat=length)


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("kind", ["spaced", "joined", "bpe"])
def test_paths_are_the_sentences_of_the_model(tmp_path, kind, order):
    """Every sentence, known or not, has its words and its probability; nothing else has any."""
    tokenizer = {"spaced": SPACED, "joined": JOINED}.get(kind) or train_bpe(TEXT, 10)
    path, model = make_graph(tmp_path, tokenizer, order=order)
    graph = load_word_graph(path)
    words = ["a", "b", "ab", "ba"] + (["c"] if kind == "bpe" else [])
    assert sorted(graph.words[1:]) == sorted(words)
    spelled = defaultdict(dict)
    for sentence in every_sentence(words, 3):
        tokens = tuple(tokenizer.encode(" ".join(sentence)))
        spelled[tokens][sentence] = model.sentence(sentence) * math.log(10)
    for tokens, expected in spelled.items():
        found = walk(graph, tokens)
        # Words without spaces may also be divided into more than three.
        assert expected.keys() <= found.keys()
        assert kind == "joined" or expected.keys() == found.keys()
        for sentence, score in expected.items():
            assert found[sentence] == pytest.approx(score, abs=1e-4)
    others = {t[:-1] for t in spelled if t} - spelled.keys()
    assert all(walk(graph, tokens) == {} for tokens in others)
    assert kind == "joined" or others


def test_no_spelling_begins_another():
    spellings = [[3], [3, 4], [3], [5], [3, 4, 5], [3, 4]]
    told_apart = disambiguate(spellings, 10)
    for one, other in itertools.permutations(told_apart, 2):
        assert other[: len(one)] != one
    assert [[t for t in s if t < 10] for s in told_apart] == spellings
    assert told_apart[3] == [5]


def enumerate_sentences(model, arpa, tokenizer, encoder_out, scale):
    """(best path, sum over paths, tokens) of each word sequence, n-grams included.

    A sum counts all of a sentence's ways to back off, as LG has them.
    """
    by_tokens = defaultdict(list)
    for path, score in enumerate_alignments(model, encoder_out).items():
        by_tokens[labels(path)].append(score)
    result = {}
    for sentence in every_sentence(["a", "b", "ab", "ba"], len(encoder_out)):
        tokens = tuple(tokenizer.encode(" ".join(sentence)))
        scores = torch.tensor(by_tokens[tokens], dtype=torch.float64)
        if len(scores):
            best = scale * arpa.sentence(sentence) * math.log(10)
            ways = torch.tensor(list(all_ways(arpa, sentence)), dtype=torch.float64)
            ways = (scale * math.log(10) * ways).logsumexp(0)
            result[sentence] = (
                float(scores.max() + best),
                float(scores.logsumexp(0) + ways),
                list(tokens),
            )
    return result


def all_ways(arpa, sentence):
    """Log10 of each path of a bigram model that backs off where it likes, once for a word."""
    steps = []
    for history, word in zip(("<s>", *sentence), (*sentence, "</s>")):
        ways = [arpa.backoffs[history,] + arpa.logs[word,]]
        if (history, word) in arpa.logs:
            ways.append(arpa.logs[history, word])
        steps.append(ways)
    return (sum(ways) for ways in itertools.product(*steps))


@pytest.mark.parametrize("scale", [0.0, 0.7])
@pytest.mark.parametrize("tokenizer", [SPACED, JOINED], ids=["spaced", "joined"])
@pytest.mark.parametrize("seed", range(2))
def test_searches_equal_enumeration(tmp_path, kind, tokenizer, seed, scale):
    path, arpa = make_graph(tmp_path, tokenizer)
    model = TinyTransducer(kind, vocab=tokenizer.vocab_size, seed=seed)
    lengths = [4, 0, 3]
    encoder_out, lens = random_batch(lengths, seed=seed)
    for method, which in (("fast_beam_search_LG", 0), ("fast_beam_search_nbest_LG", 1)):
        config = replace(EXACT, method=method, graph=path, ngram_lm_scale=scale)
        graph = word_graph(config, tokenizer.tokens, CPU)
        results = search(model, encoder_out, lens, config, graph)
        for b, length in enumerate(lengths):
            expected = enumerate_sentences(
                model, arpa, tokenizer, encoder_out[b, :length], scale
            )
            found = {tuple(h.words): h for h in results[b]}
            assert len(found) == len(results[b])
            ranked = sorted(expected, key=lambda s: expected[s][which], reverse=True)
            if which == 0:
                assert found.keys() == expected.keys()
            best = expected[ranked[0]][which]
            assert results[b][0].score == pytest.approx(best, abs=1e-3)
            for sentence, hypothesis in found.items():
                score, tokens = expected[sentence][which], expected[sentence][2]
                assert hypothesis.score == pytest.approx(score, abs=1e-3)
                assert hypothesis.tokens == tokens
                assert hypothesis.frames == sorted(set(hypothesis.frames))
                assert all(0 <= frame < length for frame in hypothesis.frames)
            scores = [h.score for h in results[b]]
            assert scores == sorted(scores, reverse=True)


def test_a_grammar_of_everything_with_scale_0_changes_nothing(tmp_path, kind):
    path, _ = make_graph(tmp_path, JOINED, text=["a b"], order=1)
    model = TinyTransducer(kind, vocab=JOINED.vocab_size, seed=3)
    model.joiner.out.bias.data[1:3] -= 1e4  # what no word is spelled with
    encoder_out, lens = random_batch([5, 3, 0], seed=3)
    config = replace(EXACT, graph=path, ngram_lm_scale=0.0, nbest=3)
    for method in ("fast_beam_search", "fast_beam_search_nbest"):
        config = replace(config, method=method, length_norm=False)
        free = search(model, encoder_out, lens, config)
        config = replace(config, method="fast_beam_search_nbest_LG")
        graph = word_graph(config, JOINED.tokens, CPU)
        for one, other in zip(free, search(model, encoder_out, lens, config, graph)):
            assert one[0].tokens == other[0].tokens
            assert one[0].frames == other[0].frames
            assert one[0].score == pytest.approx(other[0].score, abs=1e-4)


def test_the_ngrams_decide_where_the_speech_does_not(tmp_path):
    path, _ = make_graph(tmp_path, SPACED, text=["ab a"] * 9 + ["ba b"], order=3)
    model = TinyTransducer("lstm", vocab=6)
    model.joiner.out.weight.data.zero_()
    model.joiner.out.bias.data.zero_()
    encoder_out, lens = random_batch([4])
    config = replace(EXACT, method="fast_beam_search_LG", graph=path)
    config = replace(config, ngram_lm_scale=20.0)
    graph = word_graph(config, SPACED.tokens, CPU)
    (best, *_) = search(model, encoder_out, lens, config, graph)[0]
    assert best.words == ["ab", "a"]
    assert SPACED.decode(best.tokens) == "ab a"


@pytest.mark.parametrize("method", ["fast_beam_search_LG", "fast_beam_search_nbest_LG"])
def test_no_complete_path_falls_back_to_greedy_and_says_so(tmp_path, caplog, method):
    """Only "ab" is a word; a model that says "a" in every frame never ends one."""
    path, _ = make_graph(tmp_path, JOINED, text=["ab"], order=1)
    model = TinyTransducer("stateless", vocab=5, blank_bias=-1e4)
    model.joiner.out.weight.data.zero_()
    model.joiner.out.bias.data[3] = 1e3
    encoder_out, lens = random_batch([3, 0])
    config = SearchConfig(method, graph=path, fast_beam=4.0)
    graph = word_graph(config, JOINED.tokens, CPU)
    with caplog.at_level(logging.WARNING):
        speech, silence = search(model, encoder_out, lens, config, graph)
    assert [JOINED.decode(h.tokens) for h in speech] == ["aaa"]
    assert speech[0].words is None
    assert silence[0].words == []
    assert "1 of 2 utterances have no path" in caplog.text


def test_wrong_graphs_are_one_clear_line(tmp_path):
    path, _ = make_graph(tmp_path, JOINED)
    config = SearchConfig("fast_beam_search_LG", graph=path)
    with pytest.raises(UserError, match="LG.pt was made for 5 tokens that are not"):
        word_graph(config, SPACED.tokens, CPU)
    with pytest.raises(UserError, match="there is no graph .*none.pt"):
        word_graph(replace(config, graph=path + "none.pt"), JOINED.tokens, CPU)
    (tmp_path / "LG.pt").write_bytes(b"no tensors")
    with pytest.raises(UserError, match="LG.pt is damaged"):
        word_graph(config, JOINED.tokens, CPU)
    assert word_graph(SearchConfig(), JOINED.tokens, CPU) is None


def test_unusable_k2_is_one_clear_line(unusable_k2):
    config = SearchConfig("fast_beam_search_nbest_LG")
    with pytest.raises(UserError, match="fast_beam_search_nbest_LG needs k2") as error:
        word_graph(config, JOINED.tokens, CPU)
    assert "\n" not in str(error.value)


def test_history_has_to_leave_room_for_the_graph(tmp_path):
    path, _ = make_graph(tmp_path, JOINED)
    model = TinyTransducer("lstm", vocab=5)
    encoder_out, lens = random_batch([3])
    config = SearchConfig("fast_beam_search_LG", graph=path, history=30)
    graph = word_graph(config, JOINED.tokens, CPU)
    states = graph.fsa.shape[0]
    with pytest.raises(UserError, match=f"history=30 .* 5 tokens .* {states} states"):
        search(model, encoder_out, lens, config, graph)


def test_what_cannot_be_compiled_is_one_clear_line(tmp_path):
    words, orders = count_ngrams([["x", "y"]], 2)
    arpa = tmp_path / "lm.arpa"
    write_arpa(arpa, words, orders, kneser_ney(orders))
    with pytest.raises(UserError, match="cannot spell any of the 2 words of .*lm.arpa"):
        compile_word_graph(arpa, JOINED)
    arpa.write_text("\\1-grams:\n-1 <s>\n-1 a\n-1 </s>\n\\end\\\n")
    with pytest.raises(UserError, match="kaldilm refuses .*lm.arpa: .*section") as told:
        compile_word_graph(arpa, JOINED)
    assert "\n" not in str(told.value)


def test_saved_graph_is_plain(tmp_path):
    path, _ = make_graph(tmp_path, SPACED)
    stored = torch.load(path, weights_only=True)
    assert {type(v) for v in stored.values()} == {torch.Tensor, list}
    SPACED.save(tmp_path)
    assert load_tokenizer(tmp_path).tokens == stored["tokens"]
    lines = (tmp_path / "words.txt").read_text().splitlines()
    assert lines == [f"{word} {id}" for id, word in enumerate(stored["words"])]

"""From training text to an n-gram model to a graph of words, by the programs."""

import gzip

import pytest
from arpa_model import ArpaModel
from lhotse import SupervisionSegment, SupervisionSet

from icefall_attn.data.manifests import write_manifest
from icefall_attn.data.tokenizer import train_bpe, train_char
from icefall_attn.errors import UserError


def supervisions(path, texts):
    segments = [
        SupervisionSegment(str(i), str(i), 0.0, 1.0, text=text)
        for i, text in enumerate(texts)
    ]
    write_manifest(SupervisionSet.from_segments(segments), path)
    return path


def test_text_and_manifests_give_one_model(tmp_path, run_program):
    texts = ["ONE TWO", "TWO ONE ONE", "", "THREE"]
    manifest = supervisions(tmp_path / "toy_supervisions_train.jsonl.gz", texts)
    text = tmp_path / "transcript_words.txt"
    text.write_text("".join(f"{line}\n" for line in texts))
    outputs = [tmp_path / "lm/1.arpa", tmp_path / "lm/2.arpa"]
    for source, output in zip(
        (("--supervisions", manifest), ("--text", text)), outputs
    ):
        done = run_program("local", "train_ngram.py", *source, "--output", output)
        assert done.returncode == 0, done.stderr
        assert "n-grams of orders 1 to 3: 5, " in done.stderr
    assert outputs[0].read_text() == outputs[1].read_text()
    assert ArpaModel(outputs[0]).order == 3


def test_characters_are_the_words_of_chinese(tmp_path):
    from train_ngram import train_ngram

    manifest = supervisions(tmp_path / "train.jsonl.gz", ["今天 天气", "天<unk>今"])
    output = tmp_path / "lm.arpa"
    train_ngram(output, supervisions=[manifest], unit="char")
    found = {g[0] for g in ArpaModel(output).logs if len(g) == 1}
    assert found == {"<s>", "</s>", "今", "天", "气", "<unk>"}


@pytest.mark.parametrize(
    "names, order, message",
    [
        (["words_test.txt"], 3, "words_test.txt is no training set"),
        (["words.txt"], 0, "--order must be at least 1, not 0"),
        (["words.txt"], 9, "no sentence is long enough"),
        (["none.txt"], 3, "none.txt is missing"),
        ([], 3, "give either --supervisions or --text"),
    ],
)
def test_bad_input_leaves_no_model(tmp_path, names, order, message):
    from train_ngram import train_ngram

    for each in ("words.txt", "words_test.txt"):
        (tmp_path / each).write_text("A B\n")
    output = tmp_path / "lm.arpa"
    with pytest.raises(UserError, match=message):
        train_ngram(output, text=[tmp_path / name for name in names], order=order)
    assert not output.exists()


@pytest.mark.parametrize("kind", ["char", "bpe"])
def test_graph_of_a_gzipped_model(tmp_path, run_program, kind):
    pytest.importorskip("k2")
    pytest.importorskip("kaldilm")
    from icefall_attn.decoding.word_graph import load_word_graph

    text = tmp_path / "words.txt"
    text.write_text("ONE TWO\nTWO ONE\nNONE ONE\n")
    arpa, lang = tmp_path / "lm.arpa", tmp_path / "lang"
    done = run_program("local", "train_ngram.py", "--text", text, "--output", arpa)
    assert done.returncode == 0, done.stderr
    zipped = tmp_path / "lm.arpa.gz"
    zipped.write_bytes(gzip.compress(arpa.read_bytes()))
    if kind == "char":
        tokenizer = train_char(["ONE"], keep_spaces=True)  # cannot spell TWO
    else:
        tokenizer = train_bpe(["ONE NONE"], 8)
    tokenizer.save(lang)
    done = run_program("local", "compile_lg.py", "--arpa", zipped, "--lang-dir", lang)
    assert done.returncode == 0, done.stderr
    assert "2 words; 1 left out that the tokens cannot spell: TWO" in done.stderr
    graph = load_word_graph(str(lang / "LG.pt"))
    assert graph.words == ["<eps>", "ONE", "NONE"]
    assert graph.tokens == tokenizer.tokens
    assert (lang / "words.txt").read_text() == "<eps> 0\nONE 1\nNONE 2\n"


def test_graph_without_a_model_is_one_line(tmp_path, run_program):
    train_char(["ONE"], keep_spaces=True).save(tmp_path)
    options = ["--arpa", tmp_path / "none.arpa", "--lang-dir", tmp_path]
    done = run_program("local", "compile_lg.py", *options)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error: ")
    assert not (tmp_path / "LG.pt").exists()

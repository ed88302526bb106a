"""Features, tokens, validation and statistics of a tiny corpus, as the recipes call them."""

import numpy as np
import pytest
import soundfile
import compute_fbank
import prepare_tokens
from compute_fbank import read_cuts, store_features
from describe_data import describe
from lhotse import CutSet, Recording, SupervisionSegment, load_manifest
from prepare_an4 import prepare_an4
from validate_data import validate

from icefall_attn.data.manifests import write_manifest, write_part
from icefall_attn.data.tokenizer import load_tokenizer, train_char
from icefall_attn.errors import UserError

TEXTS = ("ONE TWO", "TWO", "THREE ONE", "ONE", "TWO THREE")


@pytest.fixture
def manifests(tmp_path):
    """`toy_{recordings,supervisions}_{train,test}`: five and three utterances of noise."""
    rng = np.random.default_rng(0)
    for part, count in (("train", 5), ("test", 3)):
        recordings, supervisions = [], []
        for index in range(count):
            name = f"{part}{index}"
            path = tmp_path / f"{name}.wav"
            length = 8000 + 1234 * index
            soundfile.write(path, 0.1 * rng.standard_normal(length), 16000)
            recordings.append(Recording.from_file(path, recording_id=name))
            supervisions.append(
                SupervisionSegment(
                    name, name, 0, length / 16000, text=TEXTS[index], speaker=name[-1]
                )
            )
        write_part(tmp_path / "manifests", "toy", part, recordings, supervisions)
    return tmp_path / "manifests"


@pytest.fixture
def compute(call_main, manifests):
    def call(output, *options):
        options = ("--prefix", "toy", "--output-dir", output, *options)
        call_main(compute_fbank.main, "--manifest-dir", manifests, *options)

    return call


def features(cuts):
    return {cut.id: cut.load_features() for cut in cuts}


def test_compute_fbank(compute, run_program, manifests, tmp_path):
    options = ("--parts", "train", "test", "--perturb", "train", "--speeds", 0.9, 1.1)
    compute(tmp_path / "numpy", *options, "--nj", 1, "--storage", "numpy")
    done = run_program(
        *("local", "compute_fbank.py", "--manifest-dir", manifests, "--prefix", "toy"),
        *("--output-dir", tmp_path / "lilcom", *options, "--nj", 2),
    )
    assert done.returncode == 0, done.stderr
    found = {}
    for storage in ("numpy", "lilcom"):
        train = load_manifest(tmp_path / storage / "toy_cuts_train.jsonl.gz")
        test = load_manifest(tmp_path / storage / "toy_cuts_test.jsonl.gz")
        assert {c.id for c in train} == {
            f"train{i}{speed}" for i in range(5) for speed in ("", "_sp0.9", "_sp1.1")
        }
        assert [c.id for c in test] == ["test0", "test1", "test2"]
        lengths = {c.id: c.duration for c in train}
        assert lengths["train1_sp0.9"] == pytest.approx(lengths["train1"] / 0.9, 1e-3)
        assert not list((tmp_path / storage).glob(".*"))
        found[storage] = features([*train, *test]), [c.id for c in train]
    (exact, order), (rounded, same_order) = found["numpy"], found["lilcom"]
    assert order == same_order != sorted(order)
    for name, values in exact.items():
        assert np.abs(values - rounded[name]).max() < 1 / 32


def test_a_finished_part_is_kept_and_a_changed_one_is_not(compute, tmp_path, caplog):
    output = tmp_path / "fbank"
    compute(output, "--parts", "test", "--nj", 1)
    cuts = output / "toy_cuts_test.jsonl.gz"
    before = cuts.stat().st_mtime_ns
    # A run that was killed leaves this behind.
    (output / ".toy_feats_train.tmp").mkdir()
    (output / ".toy_feats_train.tmp/feats-0.lca").write_bytes(b"half")
    with caplog.at_level("INFO"):
        compute(output, "--parts", "train", "test", "--nj", 1)
    assert f"test: {cuts} is there, kept" in caplog.messages
    assert cuts.stat().st_mtime_ns == before
    assert len(load_manifest(output / "toy_cuts_train.jsonl.gz")) == 5
    assert not (output / ".toy_feats_train.tmp").exists()
    compute(output, "--parts", "train", "--perturb", "train", "--nj", 1)
    assert len(load_manifest(output / "toy_cuts_train.jsonl.gz")) == 15


@pytest.fixture
def computed(monkeypatch):
    """The names of the cuts whose features were computed."""
    names = []

    def store(cuts, *arguments):
        names.extend(cut.id for cut in cuts)
        return store_features(cuts, *arguments)

    monkeypatch.setattr(compute_fbank, "store_features", store)
    return names


PERTURBED = ("--parts", "train", "--perturb", "train", "--speeds", 0.9, "--nj", 1)


def test_corrected_transcripts_reach_the_cuts(
    compute, manifests, computed, tmp_path, caplog
):
    compute(tmp_path / "fbank", *PERTURBED)
    cuts = tmp_path / "fbank/toy_cuts_train.jsonl.gz"
    before = load_manifest(cuts)
    supervisions = list(load_manifest(manifests / "toy_supervisions_train.jsonl.gz"))
    supervisions[1].text = "TEN"
    recordings = load_manifest(manifests / "toy_recordings_train.jsonl.gz")
    write_part(manifests, "toy", "train", recordings, supervisions)
    computed.clear()
    with caplog.at_level("INFO"):
        compute(tmp_path / "fbank", *PERTURBED)
    assert "train: 2 transcripts changed, features kept" in caplog.messages
    after = load_manifest(cuts)
    assert not computed
    assert [c.id for c in after] == [c.id for c in before]
    texts = {c.id: c.supervisions[0].text for c in before}
    texts["train1"] = texts["train1_sp0.9"] = "TEN"
    assert {c.id: c.supervisions[0].text for c in after} == texts
    for old, new in zip(before, after):
        assert (old.load_features() == new.load_features()).all()
        assert new.supervisions[0].duration == pytest.approx(new.duration, abs=0.01)
    # And now nothing is left to do.
    written = cuts.stat().st_mtime_ns
    compute(tmp_path / "fbank", *PERTURBED)
    assert not computed and cuts.stat().st_mtime_ns == written


def test_other_audio_is_computed_again(compute, manifests, computed, tmp_path):
    compute(tmp_path / "fbank", *PERTURBED)
    (tmp_path / "train0.wav").rename(tmp_path / "moved.wav")
    recordings = list(load_manifest(manifests / "toy_recordings_train.jsonl.gz"))
    recordings[0].sources[0].source = str(tmp_path / "moved.wav")
    supervisions = load_manifest(manifests / "toy_supervisions_train.jsonl.gz")
    write_part(manifests, "toy", "train", recordings, supervisions)
    computed.clear()
    compute(tmp_path / "fbank", *PERTURBED)
    assert len(computed) == 10
    cuts = load_manifest(tmp_path / "fbank/toy_cuts_train.jsonl.gz")
    assert cuts["train0"].recording.sources[0].source == str(tmp_path / "moved.wav")
    computed.clear()
    compute(tmp_path / "fbank", *PERTURBED, "--storage", "numpy")
    assert len(computed) == 10


def test_overwrite_computes_again(compute, computed, tmp_path):
    compute(tmp_path / "fbank", *PERTURBED)
    computed.clear()
    compute(tmp_path / "fbank", *PERTURBED)
    assert not computed
    compute(tmp_path / "fbank", *PERTURBED, "--overwrite")
    assert len(computed) == 10


@pytest.mark.parametrize(
    "options, message",
    [
        (("--parts", "train", "--nj", 0), "--nj is 0"),
        (("--parts", "train", "--perturb", "test"), "'test'"),
        (("--parts", "train", "--perturb", "train", "--speeds", 7), "has 7.0"),
        (("--parts", "dev"), "toy_recordings_dev.jsonl.gz is missing"),
    ],
)
def test_compute_fbank_refuses(compute, tmp_path, options, message):
    with pytest.raises(UserError, match=message):
        compute(tmp_path / "fbank", *options)


def test_unreadable_audio_is_named(compute, tmp_path):
    (tmp_path / "train3.wav").write_bytes(b"RIFF")
    with pytest.raises(UserError, match="'train3' cannot be read from .*train3.wav"):
        compute(tmp_path / "fbank", "--parts", "train", "--nj", 1)
    assert not (tmp_path / "fbank/toy_cuts_train.jsonl.gz").exists()


def test_prepare_tokens(call_main, manifests, tmp_path):
    train = manifests / "toy_supervisions_train.jsonl.gz"
    lang = tmp_path / "lang"
    program = (prepare_tokens.main, "--lang-dir", lang, "--supervisions")
    call_main(*program, train, "--kind", "bpe", "--vocab-size", 13)
    assert load_tokenizer(lang).vocab_size == 13
    assert (lang / "transcript_words.txt").read_text().splitlines() == list(TEXTS)
    # The characters that come now must not be taken for the pieces of then.
    call_main(*program, train, "--kind", "char")
    assert load_tokenizer(lang).tokens[3:] == ["▁", *sorted(set("ONETWOTHREE"))]
    call_main(*program, train, "--kind", "char", "--drop-spaces")
    assert load_tokenizer(lang).tokens[3:] == sorted(set("ONETWOTHREE"))
    test = manifests / "toy_supervisions_test.jsonl.gz"
    for options, message in (
        ((train, test, "--kind", "char"), "no training set"),
        ((train, "--kind", "bpe"), "--vocab-size is None"),
        ((train, "--kind", "bpe", "--vocab-size", 999), "vocab_size=999"),
        ((tmp_path / "x_train.jsonl.gz", "--kind", "char"), "is missing"),
    ):
        with pytest.raises(UserError, match=message):
            call_main(*program, *options)


@pytest.fixture
def cuts(manifests, tmp_path):
    """A file of 15 cuts, three speeds of five utterances, with features in numpy files."""
    cuts = read_cuts(manifests, "toy", "train", [0.9, 1.1])
    cuts = store_features(cuts, tmp_path / "fbank/feats", 1, "numpy", None)
    path = tmp_path / "fbank/toy_cuts_train.jsonl.gz"
    write_manifest(CutSet.from_cuts(cuts), path)
    return path


def changed(path, change):
    cuts = list(load_manifest(path))
    change(cuts)
    write_manifest(CutSet.from_cuts(cuts), path)


@pytest.fixture
def tokenizer():
    return train_char(TEXTS, keep_spaces=True)


def test_validate_accepts(run_program, cuts, tokenizer, tmp_path):
    tokenizer.save(tmp_path / "lang")
    done = run_program(
        "local", "validate_data.py", "--cuts", cuts, "--lang-dir", tmp_path / "lang"
    )
    assert done.returncode == 0 and "15 utterances, sound" in done.stderr


def no_transcript(cuts):
    cuts[1].supervisions = []


def twice(cuts):
    cuts.append(cuts[0])


def short_transcript(cuts):
    cuts[1].supervisions[0].duration -= 0.1


def fewer_frames(cuts):
    cuts[1].duration = cuts[1].supervisions[0].duration = 5.0


def no_features(cuts):
    cuts[1].features = None


def not_finite(cuts):
    path = f"{cuts[1].features.storage_path}/{cuts[1].features.storage_key}"
    values = np.load(path)
    values[3, 4] = np.nan
    np.save(path, values)


def unknown_character(cuts):
    cuts[1].supervisions[0].text = "ONE ZERO"


def empty_text(cuts):
    cuts[1].supervisions[0].text = ""


def too_many_tokens(cuts):
    cuts[1].supervisions[0].text = "ONE " * 20


@pytest.mark.parametrize(
    "change, message",
    [
        (no_transcript, "0 transcripts, not one"),
        (twice, "there twice"),
        (short_transcript, "its transcript goes from"),
        (fewer_frames, "frames in 5.0 s|cannot load"),
        (no_features, "has no features"),
        (not_finite, "not finite"),
        (unknown_character, "1 of 15 utterances with characters that no token covers"),
        (empty_text, "1 of 15 utterances with an empty transcript"),
        (too_many_tokens, "1 of 15 utterances with more tokens than encoder frames"),
    ],
)
def test_validate_refuses(cuts, tokenizer, change, message):
    changed(cuts, change)
    with pytest.raises(UserError, match=message):
        validate(str(cuts), tokenizer)


def test_odd_texts_are_allowed_in_a_test_set(cuts, tokenizer):
    changed(cuts, unknown_character)
    other = cuts.with_name("toy_cuts_test.jsonl.gz")
    cuts.rename(other)
    validate(str(other), tokenizer)


def test_statistics(cuts, tokenizer):
    text = "\n".join(describe(str(cuts), tokenizer))
    assert "15, 10 of them copies" in text
    assert "5, 1 to 1 utterances each" in text
    assert "8, 3 different" in text
    assert "ONE 3" in text and "TWO 3" in text
    assert "unknown tokens    0" in text


def test_an4_from_corpus_to_validation(real_an4, call_main, tmp_path):
    manifests = tmp_path / "manifests"
    prepare_an4(real_an4, manifests)
    call_main(
        *(compute_fbank.main, "--manifest-dir", manifests, "--prefix", "an4"),
        *("--parts", "dev", "test", "--nj", 1, "--output-dir", tmp_path / "fbank"),
    )
    train = load_manifest(manifests / "an4_supervisions_train.jsonl.gz")
    tokenizer = train_char((s.text for s in train), keep_spaces=True)
    assert tokenizer.vocab_size == 30
    for part, count in (("dev", 106), ("test", 130)):
        path = tmp_path / f"fbank/an4_cuts_{part}.jsonl.gz"
        validate(str(path), tokenizer)
        assert len(load_manifest(path)) == count

"""The recipes of LibriSpeech and AISHELL-1 on real pieces of them, from the audio to a table."""

import shutil

import pytest

from icefall_attn.environment import why_no_k2

SMALL = """
--model.encoder.dim=16 --model.encoder.num_layers=1 --model.encoder.feed_forward_dim=32
--model.encoder.subsampling_channels=4 --model.predictor.dim=16 --model.joiner_dim=16
--train.max_steps=8 --train.log_every=4 --optim.warm_steps=2
""".split()
DECODING = ("--checkpoint", "last.pt", "--methods", "greedy_search")


def test_librispeech(real_data, run, checkout):
    corpus = real_data("LibriSpeech").parent
    parts = "train-clean-100 test-other"
    options = ["--dl-dir", corpus, "--parts", parts, "--subset-hours", "0.03"]
    options += ["--speeds", "", "--vocab-sizes", "60 40", "--nj", "2"]
    prepared = run("librispeech", "prepare.sh", *options)
    assert prepared.returncode == 0, prepared.stdout + prepared.stderr
    assert ("left out, as k2" in prepared.stdout) == bool(why_no_k2())
    assert (checkout / "egs/librispeech/ASR/data/lang_bpe_60/LG.pt").exists() != bool(
        why_no_k2()
    )
    statistics = (checkout / "egs/librispeech/ASR/data/statistics.txt").read_text()
    assert "60 tokens" in statistics and "test-other" in statistics
    lang = ["--data.lang_dir=data/lang_bpe_60"]
    trained = run(
        "librispeech", "train.sh", "--config", "conf/tiny.yaml", "--", *SMALL, *lang
    )
    assert trained.returncode == 0, trained.stdout + trained.stderr
    decoded = run("librispeech", "decode.sh", *DECODING, "--sets", "dev train")
    assert decoded.returncode == 0, decoded.stdout + decoded.stderr
    rows = [line.split()[0] for line in decoded.stdout.splitlines() if "WER" in line]
    assert sorted(rows) == ["dev", "train"]


@pytest.fixture
def aishell(real_data, tmp_path):
    """AISHELL-1's layout: its dev and test utterance, and ten test sentences to train on."""
    pieces, sentences = real_data("aishell"), real_data("mandarin")
    corpus = tmp_path / "data_aishell"
    shutil.copytree(pieces / "wav", corpus / "wav", copy_function=shutil.copyfile)
    transcript = "transcript/aishell_transcript_v0.8.txt"
    lines = (pieces / transcript).read_text(encoding="utf-8").splitlines()
    speaker = corpus / "wav/train/S0002"
    speaker.mkdir(parents=True)
    texts = (sentences / "text").read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(texts):
        name, text = line.split(maxsplit=1)
        id = f"BAC009S0002W{number:04d}"
        shutil.copyfile(sentences / f"{name}.wav", speaker / f"{id}.wav")
        lines.append(f"{id} {text}")
    (corpus / "transcript").mkdir()
    (corpus / transcript).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("option", ["--storage none", "--features fbank_pitch"])
def test_other_features(aishell, run, checkout, option):
    """From preparation to training, as the README says."""
    again = ("--force", "true", *option.split())
    prepared = run("aishell", "prepare.sh", "--dl-dir", aishell, "--speeds", "", *again)
    assert prepared.returncode == 0, prepared.stdout + prepared.stderr
    train = {
        "--storage none": ["--data.on_the_fly=true", "--data.cache=false"],
        "--features fbank_pitch": [
            "--data.features=fbank_pitch",
            "--model.encoder.feature_dim=83",
        ],
    }[option]
    how = ("--config", "conf/tiny.yaml", "--exp-dir", f"exp-{option.split()[1]}")
    trained = run("aishell", "train.sh", *how, "--", *SMALL, *train)
    assert trained.returncode == 0, trained.stdout + trained.stderr


def test_aishell(aishell, run, checkout):
    force = ("--force", "true")
    prepared = run("aishell", "prepare.sh", "--dl-dir", aishell, "--speeds", "", *force)
    assert prepared.returncode == 0, prepared.stdout + prepared.stderr
    tokens = (checkout / "egs/aishell/ASR/data/lang_char/tokens.txt").read_text(
        encoding="utf-8"
    )
    assert "<unk> 2" in tokens and "经" in tokens
    assert "甚" not in tokens  # of the test sentence alone
    trained = run("aishell", "train.sh", "--config", "conf/tiny.yaml", "--", *SMALL)
    assert trained.returncode == 0, trained.stdout + trained.stderr
    decoded = run("aishell", "decode.sh", *DECODING)
    assert decoded.returncode == 0, decoded.stdout + decoded.stderr
    rows = {
        line.split()[0]: line
        for line in decoded.stdout.splitlines()
        if "CER" in line and "%" in line
    }
    assert sorted(rows) == ["dev", "test"]
    assert rows["test"].split()[-2] == "13"  # characters, not words

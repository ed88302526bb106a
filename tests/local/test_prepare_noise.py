"""Noises and impulse responses: any directory, the official layouts, and training with them."""

import functools
import http.server
import io
import tarfile
import threading

import numpy as np
import prepare_noise
import pytest
import soundfile
import torch
from lhotse import load_manifest
from prepare_noise import read_cuts

from icefall_attn.data.acoustics import Noise, Rooms
from icefall_attn.errors import UserError


prepare = prepare_noise.prepare_noise


@pytest.fixture(autouse=True)
def _threads():
    """As many as before: the program, called in this process, takes one."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def write(path, seconds, rate=16000, channels=1):
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(len(path.name))
    samples = 0.1 * rng.standard_normal((round(seconds * rate), channels))
    soundfile.write(path, samples.astype(np.float32), rate)


@pytest.fixture
def musan(tmp_path):
    corpus = tmp_path / "musan"
    write(corpus / "music/fma/music-fma-0000.wav", 24.0)
    write(corpus / "noise/free-sound/noise-free-sound-0000.wav", 3.0)
    write(corpus / "speech/us-gov/speech-us-gov-0000.flac", 9.0, rate=8000, channels=2)
    (corpus / "music/fma/ANNOTATIONS").write_text("music-fma-0000 classical N\n")
    return corpus


def test_windows(musan):
    cuts = read_cuts("noise", musan)
    assert [(cut.id.split("/")[-1], cut.duration) for cut in cuts] == [
        ("music-fma-0000.wav-0", 12.0),
        ("music-fma-0000.wav-1", 12.0),
        ("noise-free-sound-0000.wav", 3.0),
        ("speech-us-gov-0000.flac", 9.0),
    ]
    audio = [cut.load_audio() for cut in cuts]
    assert [a.shape for a in audio] == [(1, round(16000 * c.duration)) for c in cuts]
    whole = soundfile.read(musan / "music/fma/music-fma-0000.wav")[0]
    assert np.allclose(np.concatenate(audio[:2], axis=1)[0], whole, atol=1e-4)


def test_features(run_program, musan, tmp_path):
    output = tmp_path / "fbank/musan_cuts.jsonl.gz"
    done = run_program(
        *("local", "prepare_noise.py", "--kind", "noise", "--corpus-dir", musan),
        *("--output", output, "--features", "--nj", 2),
    )
    assert done.returncode == 0, done.stderr
    features = {cut.id: cut.load_features() for cut in load_manifest(output)}
    for cut in read_cuts("noise", musan):
        assert features[cut.id].shape == (round(100 * cut.duration), 80)
    assert len(features) == 4
    Noise([str(output)], (10.0, 20.0), 1.0, on_the_fly=False)
    written = output.stat().st_mtime_ns
    prepare("noise", musan, output, features=True)
    assert output.stat().st_mtime_ns == written
    prepare("noise", musan, output, features=True, nj=1, overwrite=True)
    assert output.stat().st_mtime_ns > written
    for cut in load_manifest(output):
        assert np.array_equal(features.pop(cut.id), cut.load_features())
    assert not features
    assert sorted(path.name for path in output.parent.iterdir()) == [
        ".index",
        "musan_cuts.jsonl.gz",
        "musan_cuts_feats",
    ]


def test_features_go_on_where_they_were(musan, tmp_path, monkeypatch):
    """A piece that a killed run has finished is not computed again; one of other audio is."""
    computed, output = [], tmp_path / "cuts.jsonl.gz"
    original = prepare_noise.MonoCut.compute_and_store_features

    def compute(cut, *args):
        if len(computed) == 2 and stop:
            raise KeyboardInterrupt
        computed.append(cut.id.split("/")[-1])
        return original(cut, *args)

    monkeypatch.setattr(prepare_noise, "PIECE", 1)
    monkeypatch.setattr(prepare_noise.MonoCut, "compute_and_store_features", compute)
    stop = True
    with pytest.raises(KeyboardInterrupt):
        prepare("noise", musan, output, features=True, nj=1)
    assert not output.exists()
    stop = False
    prepare("noise", musan, output, features=True, nj=1)
    names = [f"music-fma-0000.wav-{i}" for i in (0, 1)]
    names += ["noise-free-sound-0000.wav", "speech-us-gov-0000.flac"]
    assert computed == names
    for cut in load_manifest(output):
        assert cut.load_features().shape == (round(100 * cut.duration), 80)
    write(musan / "noise/free-sound/noise-free-sound-0000.wav", 4.0)
    output.unlink()
    prepare("noise", musan, output, features=True, nj=1)
    assert computed == names + ["noise-free-sound-0000.wav"]


def test_a_file_that_cannot_be_read(musan, tmp_path, monkeypatch, caplog):
    (musan / "noise/x.wav").write_bytes(b"no audio")
    with pytest.raises(UserError, match="with it 1 of 4 files, more than 1%"):
        read_cuts("noise", musan)
    monkeypatch.setattr(prepare_noise, "MAX_BAD_SHARE", 0.25)
    assert len(read_cuts("noise", musan)) == 4 and "left out" in caplog.text


def test_features_are_added_to_cuts_without(musan, tmp_path):
    output = tmp_path / "cuts.jsonl.gz"
    prepare("noise", musan, output)
    assert not next(iter(load_manifest(output))).has_features
    prepare("noise", musan, output, features=True, nj=1)
    assert all(cut.has_features for cut in load_manifest(output))


@pytest.mark.parametrize("inside", [True, False])
def test_official_impulse_responses(tmp_path, inside):
    corpus = tmp_path / "RIRS_NOISES"
    for room in ("small", "large"):
        name = f"simulated_rirs/{room}room/Room001/Room001-00001.wav"
        write(corpus / name, 0.5)
    write(
        corpus / "real_rirs_isotropic_noises/RVB2014_type1_rir_a.wav", 0.5, channels=8
    )
    write(corpus / "real_rirs_isotropic_noises/RVB2014_type1_noise_a.wav", 0.5)
    write(corpus / "pointsource_noises/noise-free-sound-0000.wav", 0.5)
    cuts = read_cuts("rir", corpus if inside else tmp_path)
    assert sorted(cut.id for cut in cuts) == [
        "RVB2014_type1_rir_a",
        "large-Room001-00001",
        "small-Room001-00001",
    ]
    assert all(cut.load_audio().shape == (1, 8000) for cut in cuts)


def test_real_noises_and_rooms(real_noise, tmp_path):
    for kind, count in (("noise", 8), ("rir", 4)):
        output = tmp_path / f"{kind}.jsonl.gz"
        prepare(kind, real_noise / kind, output)
        assert len(load_manifest(output)) == count
    Noise([str(tmp_path / "noise.jsonl.gz")], (10.0, 20.0), 1.0, on_the_fly=True)
    Rooms([str(tmp_path / "rir.jsonl.gz")], 1.0)


@pytest.fixture
def server(musan, tmp_path):
    """Address of an archive of the noises; its first delivery is cut short."""
    content, sent = io.BytesIO(), []
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        tar.add(musan, "musan")
    content = content.getvalue()

    class Server(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            first = int(self.headers["Range"].split("=")[1].split("-")[0])
            self.send_response(206 if first else 200)
            self.send_header("Content-Length", str(len(content) - first))
            self.end_headers()
            end = len(content) if sent else len(content) // 2
            sent.append(first)
            self.wfile.write(content[first:end])

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as httpd:
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{httpd.server_port}/musan.tar.gz", sent
        httpd.shutdown()


def test_download_goes_on_and_is_there_when_whole(server, tmp_path, monkeypatch):
    url, sent = server
    fetch = functools.partial(prepare_noise.download_musan, url=url)
    monkeypatch.setitem(prepare_noise.DOWNLOADS, "noise", ("musan", fetch))
    corpus, output = tmp_path / "dl/musan", tmp_path / "cuts.jsonl.gz"
    with pytest.raises(UserError, match="cannot fetch musan"):
        prepare("noise", corpus, output, download=True)
    assert not corpus.exists() and not output.exists()
    prepare("noise", corpus, output, download=True)
    assert [path.name for path in corpus.parent.iterdir()] == ["musan"]
    assert sent[0] == 0 and sent[1] > 0
    assert len(load_manifest(output)) == 4
    # And now it is there.
    prepare("noise", corpus, output, download=True, overwrite=True)
    assert len(sent) == 2


def test_what_does_not_fit(musan, tmp_path):
    output = tmp_path / "out/cuts.jsonl.gz"
    good = {"kind": "noise", "corpus_dir": musan, "output": output}
    empty, damaged = tmp_path / "empty", tmp_path / "damaged"
    empty.mkdir(), damaged.mkdir()
    (damaged / "a.wav").write_bytes(b"RIFF no audio")
    for change, message in (
        ({"nj": 0}, "--nj is 0"),
        ({"kind": "rir", "features": True}, "--features is for noises"),
        ({"output": tmp_path / "cuts.json"}, "end in .jsonl.gz"),
        ({"corpus_dir": tmp_path / "gone"}, "gone is no directory"),
        ({"corpus_dir": empty}, "has no wav or flac file"),
        ({"corpus_dir": damaged}, "a.wav cannot be read as audio"),
        ({"corpus_dir": tmp_path / "gone", "download": True}, "a directory musan"),
    ):
        with pytest.raises(UserError, match=message):
            prepare(**{**good, **change})
    assert not output.parent.exists()

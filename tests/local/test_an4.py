"""AN4: the official layout, the dev speakers, damaged corpora, downloads."""

import http.server
import shutil
import tarfile
import threading

import pytest
from download_an4 import download_an4
from lhotse import load_manifest
from prepare_an4 import DEV_SPEAKERS, parse_transcription, prepare_an4

from icefall_attn.errors import UserError


@pytest.fixture
def corpus_copy(real_an4, tmp_path):
    """The corpus with lists that can be changed; the audio is the real one."""
    copy = tmp_path / "an4"
    shutil.copytree(real_an4 / "etc", copy / "etc")
    (copy / "etc").chmod(0o755)
    for path in (copy / "etc").iterdir():
        path.chmod(0o644)
    (copy / "wav").symlink_to(real_an4 / "wav")
    return copy


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


@pytest.mark.parametrize("inside", [False, True])
def test_parts(real_an4, tmp_path, inside):
    prepare_an4(real_an4 if inside else real_an4.parent, tmp_path)
    parts = {}
    for part in ("train", "dev", "test"):
        recordings = load_manifest(tmp_path / f"an4_recordings_{part}.jsonl.gz")
        supervisions = load_manifest(tmp_path / f"an4_supervisions_{part}.jsonl.gz")
        assert [r.id for r in recordings] == [s.recording_id for s in supervisions]
        parts[part] = list(supervisions)
        durations = {r.id: r.duration for r in recordings}
        assert all(s.duration == durations[s.id] for s in supervisions)
    assert len(parts["train"]) + len(parts["dev"]) == 948
    assert len(parts["test"]) == 130
    words = [w for s in parts["test"] for w in s.text.split()]
    assert len(words) == 773
    speakers = {p: {s.speaker for s in parts[p]} for p in parts}
    assert speakers["dev"] == set(DEV_SPEAKERS)
    assert len(speakers["train"]) == 74 - len(DEV_SPEAKERS)
    assert not speakers["dev"] & speakers["train"]
    assert not speakers["test"] & (speakers["train"] | speakers["dev"])
    assert not any(c in s.text for p in parts.values() for s in p for c in "<>()")
    first = next(s for s in parts["test"] if s.id == "an406-fcaw-b")
    assert (first.text, first.gender) == ("RUBOUT G M E F THREE NINE", "female")


@pytest.mark.parametrize(
    "line, text",
    [
        ("<s> GO </s> (an253-fash-b)", "GO"),
        ("RUBOUT  G M (an253-fash-b)", "RUBOUT G M"),
        ("<s>  </s> (an253-fash-b)", ""),
    ],
)
def test_transcription_lines(line, text):
    assert parse_transcription(line, "here") == (text, "an253-fash-b")


def test_transcription_without_a_name():
    with pytest.raises(UserError, match="here: expected .* found 'GO'"):
        parse_transcription("GO", "here")


def test_damaged_lists(corpus_copy, tmp_path):
    out = tmp_path / "manifests"
    texts = corpus_copy / "etc/an4_test.transcription"
    original = texts.read_text()
    edit(texts, "(an406-fcaw-b)", "(an999-fcaw-b)")
    with pytest.raises(UserError, match="an999-fcaw-b"):
        prepare_an4(corpus_copy, out)
    texts.write_text(original.split("\n", 1)[1])
    with pytest.raises(UserError, match="129 lines for 130 utterances"):
        prepare_an4(corpus_copy, out)
    texts.unlink()
    with pytest.raises(UserError, match="an4_test.transcription is missing"):
        prepare_an4(corpus_copy, out)
    texts.write_text(original)
    ids = corpus_copy / "etc/an4_test.fileids"
    edit(ids, "an4test_clstk/fcaw/an406-fcaw-b\n", "")
    with pytest.raises(UserError, match="lists 129 utterances; the corpus has 130"):
        prepare_an4(corpus_copy, out)
    assert not out.exists()


def test_missing_and_damaged_audio(corpus_copy, real_an4, tmp_path):
    (corpus_copy / "wav").unlink()
    (corpus_copy / "wav").mkdir()
    test = corpus_copy / "wav/an4test_clstk"
    (corpus_copy / "wav/an4_clstk").symlink_to(real_an4 / "wav/an4_clstk")
    with pytest.raises(UserError, match="an406-fcaw-b.sph is missing"):
        prepare_an4(corpus_copy, tmp_path / "manifests")
    with pytest.raises(UserError, match="an406-fcaw-b.sph is missing"):
        download_an4(corpus_copy)
    (test / "fcaw").mkdir(parents=True)
    (test / "fcaw/an406-fcaw-b.sph").write_bytes(b"NIST_1A\n")
    with pytest.raises(UserError, match="an406-fcaw-b.sph cannot be read as audio"):
        prepare_an4(corpus_copy, tmp_path / "manifests")


def test_no_corpus(tmp_path):
    with pytest.raises(UserError, match="holds no AN4 corpus"):
        prepare_an4(tmp_path, tmp_path / "manifests")


def test_nothing_is_fetched_where_the_corpus_is(real_an4):
    for directory in (real_an4, real_an4.parent):
        download_an4(directory, "http://127.0.0.1:9/never.tar.gz")


def test_failed_download_is_one_line(run_program, tmp_path):
    url = "http://127.0.0.1:9/an4_sphere.tar.gz"
    done = run_program(
        "an4", "download_an4.py", "--dl-dir", tmp_path / "dl", "--url", url
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert url in done.stderr and f"--dl-dir {tmp_path}/dl" in done.stderr


class Server(http.server.BaseHTTPRequestHandler):
    """Serves `content`, breaking off after `limit` bytes of it."""

    content = b""
    limit = 0
    starts: list = []

    def do_GET(self):
        start = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
        self.starts.append(start)
        self.send_response(206)
        self.send_header("Content-Length", str(len(self.content) - start))
        self.end_headers()
        self.wfile.write(self.content[start : self.limit])

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, daemon=True)
        thread.start()
        Server.starts = []
        yield f"http://127.0.0.1:{httpd.server_port}/an4_sphere.tar.gz"
        httpd.shutdown()


def small_archive(tmp_path, utterances):
    """An archive of the official layout, with empty audio."""
    source = tmp_path / "source/an4"
    (source / "etc").mkdir(parents=True)
    for part, count in utterances.items():
        ids = [f"an4_{part}/fash/an{i}-fash-b" for i in range(count)]
        (source / "etc" / f"an4_{part}.fileids").write_text("\n".join(ids) + "\n")
        for file_id in ids:
            path = source / "wav" / f"{file_id}.sph"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as tar:
        tar.add(source, "an4")
    return (tmp_path / "a.tar.gz").read_bytes()


def test_download_goes_on_and_unpacks(server, tmp_path):
    Server.content = small_archive(tmp_path, {"train": 948, "test": 130})
    Server.limit = len(Server.content) // 2
    with pytest.raises(UserError, match="broke off|cannot be fetched"):
        download_an4(tmp_path / "dl", server)
    assert not (tmp_path / "dl/an4_sphere.tar.gz").exists()
    Server.limit = len(Server.content)
    download_an4(tmp_path / "dl", server)
    assert Server.starts == [0, len(Server.content) // 2]
    assert len(list((tmp_path / "dl/an4/wav").rglob("*.sph"))) == 1078
    download_an4(tmp_path / "dl", server)
    assert len(Server.starts) == 2


def test_incomplete_and_damaged_archives(tmp_path):
    (tmp_path / "dl").mkdir()
    archive = tmp_path / "dl/an4_sphere.tar.gz"
    whole = small_archive(tmp_path, {"train": 948, "test": 13})
    archive.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="is damaged"):
        download_an4(tmp_path / "dl")
    assert not (tmp_path / "dl/an4").exists()
    archive.write_bytes(whole)
    with pytest.raises(UserError, match="lists 13 utterances"):
        download_an4(tmp_path / "dl")


def test_archive_that_points_outside(tmp_path):
    (tmp_path / "dl").mkdir()
    (tmp_path / "evil").write_text("evil")
    with tarfile.open(tmp_path / "dl/an4_sphere.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "evil", "../../escaped")
    with pytest.raises(UserError, match="points outside"):
        download_an4(tmp_path / "dl")
    assert not (tmp_path / "escaped").exists()

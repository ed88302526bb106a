"""What may happen to a training's files and processes, and that it goes on from the last good state."""

import logging
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch
from small_training import make_config

from icefall_attn.bin.train import train
from icefall_attn.data.corpus import Corpus
from icefall_attn.errors import UserError
from icefall_attn.files import remove_leftovers
from icefall_attn.training import checkpoint as ckpt
from icefall_attn.training.writer import CheckpointWriter, Snapshot


def truncate(path):
    path.write_bytes(path.read_bytes()[:1000])


def test_a_damaged_checkpoint_is_passed_over(make, tmp_path, caplog):
    trainer = make(max_steps=6, save_every=2, keep_last=10)
    trainer.run()
    exp = tmp_path / "exp"
    caplog.set_level(logging.INFO)
    truncate(exp / "last.pt")  # and the newest epoch, which is the same file
    resumed = make(max_steps=6, save_every=2, keep_last=10)
    assert resumed.progress.step == 4
    assert "last.pt is damaged" in caplog.text
    assert f"resuming from {exp}/checkpoint-4.pt" in caplog.text
    resumed.run()
    state = trainer.model.state_dict()
    for name, value in resumed.model.state_dict().items():
        assert torch.equal(value, state[name]), name
    assert ckpt.load_checkpoint(exp / "last.pt")["progress"]["step"] == 6
    (exp / "last.pt").unlink()
    assert ckpt.newest_checkpoint(exp)[1]["progress"]["step"] == 6
    assert "last.pt is missing; trying" in caplog.text
    for path in exp.glob("*.pt"):
        truncate(path)
    with pytest.raises(UserError, match="all checkpoints in .* are damaged"):
        make(max_steps=6, save_every=2)


def test_a_kill_while_a_checkpoint_is_written(tmp_path):
    """The process dies with the file half on the disk; the old one stays, the rest is cleared away."""
    program = f"""
import os, signal, torch
from pathlib import Path
from icefall_attn import files
from icefall_attn.training.checkpoint import save_checkpoint
path = Path({str(tmp_path)!r}) / "last.pt"
save_checkpoint(path, {{"step": 1}})
os.fsync = lambda fd: os.kill(os.getpid(), signal.SIGKILL)
save_checkpoint(path, {{"step": 2, "w": {{"w": torch.randn(10_000)}}}})
"""
    done = subprocess.run([sys.executable, "-c", program])
    assert done.returncode == -signal.SIGKILL
    (leftover,) = tmp_path.glob(".*.tmp")
    assert ckpt.newest_checkpoint(tmp_path)[1] == {"step": 1}
    remove_leftovers(tmp_path)
    assert not leftover.exists()


class Full:
    """A disk on which checkpoints of steps have no room."""

    def __init__(self, monkeypatch, prefix):
        self.tried = []
        save = ckpt.save_checkpoint

        def refuse(path, values):
            if path.name.startswith(prefix):
                self.tried.append(path.name)
                raise OSError(28, "No space left on device", str(path))
            save(path, values)

        monkeypatch.setattr("icefall_attn.training.writer.save_checkpoint", refuse)


def test_a_full_disk_between_epochs_is_survived(make, tmp_path, monkeypatch, caplog):
    full = Full(monkeypatch, "checkpoint-")
    make(max_steps=6, save_every=2).run()
    assert full.tried == ["checkpoint-2.pt", "checkpoint-4.pt"]
    assert caplog.text.count("was not written: No space left on device") == 2
    assert ckpt.load_checkpoint(tmp_path / "exp/last.pt")["progress"]["step"] == 6


def test_a_full_disk_at_the_end_of_an_epoch_ends_it(make, tmp_path, monkeypatch):
    Full(monkeypatch, "epoch-")
    with pytest.raises(OSError, match="No space left"):
        make(max_steps=4, save_every=2).run()
    assert ckpt.load_checkpoint(tmp_path / "exp/last.pt")["progress"]["step"] == 2


def test_a_worker_that_dies(corpus_dir, tokenizer, tmp_path, monkeypatch):
    """As the system kills one for want of memory."""
    config = make_config(corpus_dir, tmp_path, num_epochs=1)
    config.model.vocab_size = tokenizer.vocab_size
    config.data.num_workers = 1
    parent, load = os.getpid(), Corpus.batch

    def batch(self, numbers, *args):
        if os.getpid() != parent and 0 in numbers:
            os.kill(os.getpid(), signal.SIGKILL)
        return load(self, numbers, *args)

    monkeypatch.setattr(Corpus, "batch", batch)
    with pytest.raises(
        UserError, match="a process that loads data is gone .*num_workers"
    ):
        train(config, tokenizer)


def test_writing_does_not_keep_the_training(tmp_path, monkeypatch):
    """The caller goes on, what it changes then is not written, and the next one waits its turn."""
    gate, order = threading.Event(), []
    save = ckpt.save_checkpoint

    def slow(path, values):
        gate.wait(30)
        save(path, values)
        order.append(path.name)

    monkeypatch.setattr("icefall_attn.training.writer.save_checkpoint", slow)
    writer, weight = CheckpointWriter(), torch.ones(3)
    writer.write(tmp_path / "a.pt", {"w": {"w": weight}}, lambda: order.append("then"))
    assert order == []
    weight.zero_()
    threading.Timer(0.1, gate.set).start()
    began = time.monotonic()
    writer.write(tmp_path / "b.pt", {"w": {"w": weight}}, lambda: None)
    assert time.monotonic() - began >= 0.05 and order[:2] == ["a.pt", "then"]
    writer.wait()
    assert order == ["a.pt", "then", "b.pt"]
    assert ckpt.load_checkpoint(tmp_path / "a.pt")["w"]["w"].tolist() == [1, 1, 1]
    assert ckpt.load_checkpoint(tmp_path / "b.pt")["w"]["w"].tolist() == [0, 0, 0]


def test_copies_of_checkpoints_use_the_same_memory():
    """What was made ready is what is copied to; values of another shape get room of their own."""
    snapshot = Snapshot()
    values = {"model": {"w": torch.rand(5), "n": torch.tensor(3)}, "states": [1, "a"]}
    snapshot.reserve(values)
    places = [buffer.data_ptr() for buffer in snapshot._buffers.values()]
    copy = snapshot.take(values)
    assert [copy["model"][k].data_ptr() for k in "wn"] == places
    expected = values["model"]["w"].tolist()
    values["model"]["w"].zero_()
    assert copy["model"]["w"].tolist() == expected
    assert copy["model"]["n"].item() == 3 and copy["states"] == [1, "a"]
    values["model"]["w"] = torch.ones(2, 3, dtype=torch.float64)
    again = snapshot.take(values)
    assert torch.equal(again["model"]["w"], values["model"]["w"])
    assert again["model"]["n"].data_ptr() == places[1]

"""Checkpoints are whole, plain, averaged right and pruned right."""

import subprocess
import sys

import pytest
import torch

from icefall_attn.errors import UserError
from icefall_attn.training import checkpoint as ckpt


def test_round_trip_and_link(tmp_path):
    path = tmp_path / "checkpoint-1.pt"
    values = {"model": {"w": torch.ones(2)}, "n": 3, "list": [1.5, "a"], "text": "x"}
    ckpt.save_checkpoint(path, values)
    ckpt.link(path, tmp_path / "last.pt")
    ckpt.link(path, tmp_path / "last.pt")  # taking the place of an older one
    loaded = ckpt.load_checkpoint(tmp_path / "last.pt")
    assert loaded["n"] == 3 and loaded["list"] == [1.5, "a"] and loaded["text"] == "x"
    assert torch.equal(loaded["model"]["w"], torch.ones(2))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["checkpoint-1.pt", "last.pt"]


def test_what_is_not_plain_is_not_loaded(tmp_path):
    torch.save({"path": tmp_path}, tmp_path / "x.pt")
    with pytest.raises(UserError, match="x.pt is damaged or not a checkpoint"):
        ckpt.load_checkpoint(tmp_path / "x.pt")


def test_a_truncated_file_is_named(tmp_path):
    path = tmp_path / "x.pt"
    ckpt.save_checkpoint(path, {"w": torch.randn(1000)})
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(UserError, match="x.pt is damaged"):
        ckpt.load_checkpoint(path)
    with pytest.raises(UserError, match="no checkpoint"):
        ckpt.load_checkpoint(tmp_path / "y.pt")


def test_a_full_disk_is_one_line_and_leaves_the_old_file(tmp_path):
    """In a process whose files may not grow past 100 kB, as on a disk that is full."""
    path = tmp_path / "last.pt"
    ckpt.save_checkpoint(path, {"n": 1})
    program = f"""
import resource, torch
from pathlib import Path
from icefall_attn.errors import run_main
from icefall_attn.training.checkpoint import save_checkpoint
import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
run_main(lambda: save_checkpoint(Path({str(path)!r}), {{"model": {{"w": torch.randn(100_000)}}}}))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: ") and len(done.stderr.splitlines()) == 1
    assert ckpt.load_checkpoint(path) == {"n": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["last.pt"]


def fill(directory, losses):
    for epoch, loss in losses.items():
        ckpt.save_checkpoint(directory / f"epoch-{epoch}.pt", {"epoch": epoch})
        ckpt.note_valid_loss(directory, {"epoch": epoch, "valid_loss": loss})


def test_an_epoch_trained_again_replaces_its_loss(tmp_path):
    fill(tmp_path, {1: 3.0, 2: 1.0})
    ckpt.note_valid_loss(tmp_path, {"epoch": 2, "valid_loss": 4.0})
    assert ckpt.read_valid_losses(tmp_path) == {1: 3.0, 2: 4.0}


def test_prune_keeps_the_newest_and_the_best(tmp_path):
    fill(tmp_path, {1: 0.1, 2: 5.0, 3: 4.0, 4: 3.0, 10: 2.0})
    for step in (5, 90, 100):
        ckpt.save_checkpoint(tmp_path / f"checkpoint-{step}.pt", {})
    ckpt.prune(tmp_path, keep_last=2, keep_epochs=1)
    names = sorted(p.name for p in tmp_path.glob("*.pt"))
    assert names == [
        "checkpoint-100.pt",
        "checkpoint-90.pt",
        "epoch-1.pt",
        "epoch-10.pt",
    ]

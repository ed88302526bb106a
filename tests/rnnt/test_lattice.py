"""The sum over alignments: probabilities of arcs, digits of long lattices, which backend."""

import sys

import pytest
import torch
from rnnt.loss_inputs import BACKENDS, close

from icefall_attn.errors import UserError
from icefall_attn.rnnt import lattice


@pytest.mark.parametrize("backend", BACKENDS)
def test_occupations_are_probabilities(backend):
    """Every frame is left by exactly one blank; every label is emitted once."""
    px, py = torch.randn(3, 5, 9), torch.randn(3, 6, 8)
    px[:, :, -1] = float("-inf")
    counts, lengths = torch.tensor([5, 2, 0]), torch.tensor([8, 6, 4])
    for index, frames in enumerate(lengths.tolist()):
        px[index, :, frames] = float("-inf")
    _, label, blank = lattice.occupation(px, py, counts, lengths, backend)
    for index, (count, frames) in enumerate(zip(counts.tolist(), lengths.tolist())):
        close(blank[index].sum(0)[:frames], torch.ones(frames))
        close(label[index].sum(1)[:count], torch.ones(count))
        assert (
            blank[index, count + 1 :].abs().sum() == 0
            and blank[index, :, frames:].abs().sum() == 0
        )


def test_long_lattices_keep_their_digits():
    """Thousands of frames whose arcs differ by hundreds of nats."""
    px, py = 50 * torch.randn(1, 300, 3001), 50 * torch.randn(1, 301, 3000) - 100
    px[:, :, -1] = float("-inf")
    sizes = torch.tensor([300]), torch.tensor([3000])
    total, _, blank = lattice.occupation(px.double(), py.double(), *sizes, "torch")
    assert torch.isfinite(total).all()
    close(blank[0].sum(0), torch.ones(3000, dtype=torch.float64), rtol=1e-6)


def test_a_k2_that_cannot_be_used_is_named(monkeypatch):
    monkeypatch.setattr(
        lattice, "why_no_k2", lambda device: f"k2 is broken on {device}"
    )
    assert lattice.choose_backend("auto") == "torch"
    with pytest.raises(UserError, match="k2 is broken on cuda; use loss.backend=torch"):
        lattice.choose_backend("k2", "cuda")


def test_a_k2_for_another_torch_is_a_reason(monkeypatch, tmp_path):
    """k2 raises errors of its own at import; nothing of ours may die of that."""
    (tmp_path / "k2.py").write_text("raise RuntimeError('wrong torch')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "k2", raising=False)
    lattice.why_no_k2.cache_clear()
    assert "wrong torch" in lattice.why_no_k2()
    lattice.why_no_k2.cache_clear()

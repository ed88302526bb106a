"""Epochs are chosen and averaged right."""

import pytest
import torch
from training.test_checkpoint import fill

from icefall_attn.errors import UserError
from icefall_attn.training.experiment import average, choose


def test_average():
    one = {"w": torch.tensor([1.0, 2.0]), "count": torch.tensor(3)}
    two = {"w": torch.tensor([3.0, 6.0]), "count": torch.tensor(9)}
    mean = average([one, two])
    assert mean["w"].tolist() == [2.0, 4.0] and mean["w"].dtype == torch.float32
    assert mean["count"].item() == 9 and mean["count"].dtype == torch.int64
    assert torch.equal(average([one])["w"], one["w"])
    assert torch.equal(average([one, one, one])["w"], one["w"])


def test_choice_of_epochs(tmp_path):
    fill(tmp_path, {1: 3.0, 2: 1.0, 3: 2.0, 4: 5.0})
    names = lambda *choice: [p.stem for p in choose(tmp_path, *choice)[0]]
    assert names(2, "valid-loss") == ["epoch-2", "epoch-3"]
    assert names(2, "epoch") == ["epoch-3", "epoch-4"]
    assert choose(tmp_path, 2, "epoch")[1] == "epoch-4_avg-2"
    assert choose(tmp_path, 2, "valid-loss")[1] == "best_avg-2"
    with pytest.raises(UserError, match="4 epochs, too few to average 5"):
        choose(tmp_path, 5, "epoch")
    with pytest.raises(
        UserError, match="one of valid-loss, epoch, running-mean, not 'wer'"
    ):
        choose(tmp_path, 1, "wer")


def test_pruned_epochs_are_not_replaced_by_others(tmp_path):
    fill(tmp_path, {1: 3.0, 2: 1.0, 3: 2.0, 4: 5.0})
    (tmp_path / "epoch-3.pt").unlink()
    with pytest.raises(UserError, match="no longer has epoch-3.pt.*keep_epochs"):
        choose(tmp_path, 2, "epoch")
    assert choose(tmp_path, 1, "valid-loss")[0] == [tmp_path / "epoch-2.pt"]


def test_an_earlier_epoch_as_if_the_training_had_ended_there(tmp_path):
    fill(tmp_path, {1: 3.0, 2: 1.0, 3: 2.0, 4: 0.5})
    last = choose(tmp_path, 2, "epoch", 3)
    assert [path.stem for path in last.paths] == ["epoch-2", "epoch-3"]
    assert last.name == "epoch-3_avg-2"
    best = choose(tmp_path, 2, "valid-loss", 3)
    assert [path.stem for path in best.paths] == ["epoch-2", "epoch-3"]
    assert best.name == "best-to-3_avg-2"
    mean = choose(tmp_path, 2, "running-mean", 3)
    assert [path.stem for path in mean.paths] == ["epoch-1", "epoch-3"]
    with pytest.raises(UserError, match="has no epoch 5, only 1, 2, 3, 4"):
        choose(tmp_path, 1, "epoch", 5)
    with pytest.raises(UserError, match="too few to average 3"):
        choose(tmp_path, 3, "epoch", 2)

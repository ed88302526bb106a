"""The running mean is the mean of the weights after the steps that it has seen."""

import pytest
import torch

from icefall_attn.errors import UserError
from icefall_attn.training.experiment import load_experiment


def train(trainer, stop=None):
    """Trains; returns the states after each step, and the epoch of each."""
    states, step = [], trainer._step

    def noting(batches):
        if trainer.progress.step == stop:
            raise KeyboardInterrupt
        votes = step(batches)
        state = trainer.model.state_dict()
        kept = {name: value.double().clone() for name, value in state.items()}
        states.append((trainer.progress.epoch, kept))
        return votes

    trainer._step = noting
    try:
        trainer.run()
    except KeyboardInterrupt:
        pass
    return states


def mean(states):
    return {name: sum(s[name] for s in states) / len(states) for name in states[0]}


@pytest.mark.parametrize("every", [1, 3])
def test_epochs_by_their_running_mean(make, tmp_path, every):
    """Through an interruption too; with batch norm's statistics."""
    states = train(make(num_epochs=3, average_every=every, save_every=4), stop=7)[:4]
    states += train(make(num_epochs=3, average_every=every, save_every=4))
    sampled = states[every - 1 :: every]
    for avg in (1, 2, 3):
        loaded = load_experiment(str(tmp_path / "exp"), avg, "running-mean")
        assert loaded.name == f"epoch-3_running-mean-{avg}"
        expected = mean([state for epoch, state in sampled if epoch > 3 - avg])
        for name, value in loaded.model.state_dict().items():
            if value.is_floating_point():
                torch.testing.assert_close(value, expected[name].float())
    last = load_experiment(str(tmp_path / "exp"), 1, "epoch").model.state_dict()
    assert any(
        not torch.equal(last[n], v) for n, v in loaded.model.state_dict().items()
    )


def test_without_a_sample(make, tmp_path):
    train(make(num_epochs=3, average_every=0))
    with pytest.raises(UserError, match="train.average_every=0.*another --by"):
        load_experiment(str(tmp_path / "exp"), 2, "running-mean")

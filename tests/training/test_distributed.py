"""Several processes train one model: the same gradient, the same epoch, the same end."""

import os
import signal

import pytest
import torch
from processes import together
from small_training import gradient

from icefall_attn.data.batch import Batch
from icefall_attn.training import checkpoint as ckpt
from icefall_attn.training.group import Group, PeerLost
from icefall_attn.training.interruption import Interrupted
from icefall_attn.training.usable import select
from icefall_attn.training.validation import validate


def parts_of(batch):
    """Four batches of unequal size."""
    bounds = [0, 1, 2, 4, len(batch.ids)]
    return [select(batch, list(range(a, b))) for a, b in zip(bounds, bounds[1:])]


@pytest.mark.parametrize("accumulate", [1, 2])
def test_gradient_is_that_of_one_process(make, batch, accumulate):
    """With batches of different sizes, and one process that has none in the end."""
    one, *three = parts_of(batch)
    parts = [*three, one, one, Batch.empty(80), one, Batch.empty(80)]
    for begin in range(0, len(parts), 2 * accumulate):
        turn = parts[begin : begin + 2 * accumulate]
        expected = gradient(make(exp="alone"), [b for b in turn if b.ids])
        found = together(lambda g: gradient(make(g), turn[g.rank :: 2]), 2)
        assert torch.equal(found[0], found[1])
        torch.testing.assert_close(found[0], expected, rtol=1e-4, atol=1e-6)


def test_a_turn_without_any_utterance_changes_nothing(make):
    def step(group):
        trainer = make(group)
        before = trainer.model.state_dict()
        before = {name: value.clone() for name, value in before.items()}
        trainer._step([Batch.empty(80)])
        after = trainer.model.state_dict()
        return all(torch.equal(after[name], value) for name, value in before.items())

    assert together(step, 2) == [True, True]


def test_validation_is_that_of_one_process(make, tokenizer):
    def check(group):
        trainer = make(group)
        parts = trainer.model, tokenizer, trainer.config, trainer.device, None
        return validate(*parts, group)

    expected = check(Group())
    for size in (2, 5):
        for found in together(check, size):
            assert found == pytest.approx(expected, rel=1e-5)


def summary(trainer):
    """All that may differ between two runs."""
    state = trainer.model.state_dict()
    names = {
        name: value.double().sum().item()
        for name, value in state.items()
        if "num_batches_tracked" not in name  # nobody reads it
    }
    return names, trainer.progress.step, trainer.progress.dropped


def weights(trainer):
    return [p.double().sum().item() for p in trainer.model.parameters()]


def record(trainer):
    """The names of each step's utterances, as they are seen here."""
    seen, step = [], trainer._step

    def recording(batches):
        seen.extend(batch.ids for batch in batches)
        return step(batches)

    trainer._step = recording
    return seen


def test_all_processes_end_with_one_model(make):
    """With batch norm, whose statistics each takes from its own batches."""

    def train(group):
        trainer = make(group, num_epochs=2)
        seen = record(trainer)
        trainer.run()
        return summary(trainer), seen

    (one, first), (other, second) = together(train, 2)
    assert one == other
    names = [name for batch in first + second for name in batch]
    assert len(names) == 2 * len(set(names)) and len(first) == len(second)


def interrupt(trainer, step, number=signal.SIGTERM):
    """Sends this process a signal in that step."""
    original = trainer._step

    def interrupting(batches):
        if trainer.progress.step + 1 == step:
            os.kill(os.getpid(), number)
        return original(batches)

    trainer._step = interrupting


@pytest.mark.parametrize("accumulate", [1, 2])
def test_interrupted_and_resumed_equals_undisturbed(make, tmp_path, accumulate):
    """Bit for bit, though only one of the processes gets the signal."""

    def train(name, group, stop=None):
        trainer = make(group, name, num_epochs=2, accumulate=accumulate)
        if stop is not None and group.rank == 1:
            interrupt(trainer, stop)
        trainer.run()

    assert together(lambda g: train("whole", g), 2) == [None, None]
    stopped = together(lambda g: train("killed", g, stop=3), 2)
    assert all(isinstance(e, Interrupted) and e.code == 75 for e in stopped)
    assert ckpt.load_checkpoint(tmp_path / "killed/last.pt")["progress"]["step"] == 3
    assert together(lambda g: train("killed", g), 2) == [None, None]
    one, other = (
        ckpt.load_checkpoint(tmp_path / name / "last.pt")
        for name in ("whole", "killed")
    )
    assert len(one["random"]) == 2 and one["random"] == other["random"]
    for name, value in one["model"].items():
        assert torch.equal(value, other["model"][name]), name
    for a, b in zip(one["optimizer"]["states"], other["optimizer"]["states"]):
        assert all(torch.equal(a[name], b[name]) for name in a)


def test_another_number_of_processes_takes_what_is_left(make, tmp_path, caplog):
    def train(group, stop=None):
        trainer = make(group, num_epochs=1)
        seen = record(trainer)
        if stop is not None:
            interrupt(trainer, stop)
        try:
            trainer.run()
        except Interrupted:
            pass
        return [name for batch in seen for name in batch]

    seen = together(lambda g: train(g, stop=2), 2)
    seen.append(train(Group(), stop=3))
    assert "this run was of 2 processes and goes on with 1" in caplog.text
    seen += together(train, 3)
    names = [name for part in seen for name in part]
    everything = make(exp="other")
    expected = record(everything)
    everything.options.num_epochs = 1
    everything.run()
    assert sorted(names) == sorted(name for batch in expected for name in batch)


def test_a_broken_gradient_of_one_is_skipped_by_all(make, batch, tmp_path):
    parts = parts_of(batch)

    def step(group):
        trainer = make(group)
        before = weights(trainer)
        weight = trainer.model.encoder.subsampling.linear.weight
        if group.rank == 1:
            hook = weight.register_hook(lambda grad: grad * float("nan"))
        trainer._step([parts[group.rank]])
        skipped = trainer.progress.skipped_steps, weights(trainer) == before
        if group.rank == 1:
            hook.remove()
        trainer._step([parts[group.rank]])
        return skipped, trainer.progress.skipped_steps, weights(trainer) == before

    assert together(step, 2) == [((1, True), 1, False)] * 2
    files = sorted(path.name for path in (tmp_path / "exp/bad-steps").iterdir())
    assert files == ["step-1-rank-0.pt", "step-1-rank-1.pt"]
    kept = ckpt.load_checkpoint(tmp_path / "exp/bad-steps" / files[1])
    assert kept["ids"] == [parts[1].ids]
    assert torch.equal(kept["features"][0], parts[1].features)


def test_a_process_that_dies_takes_the_others_along(make, batch):
    def step(group):
        trainer = make(group)
        trainer._step([batch])
        if group.rank == 1:
            os._exit(1)
        trainer._step([batch])

    first, second = together(step, 2)
    assert isinstance(first, PeerLost) and second is None

"""Half precision where the device has it: close to float32, and its overflows are survived."""

import logging

import pytest
import torch
from small_training import gradient

from icefall_attn.attention import MECHANISMS
from icefall_attn.errors import UserError
from icefall_attn.training import checkpoint as ckpt
from icefall_attn.training.precision import Precision

CPU = torch.device("cpu")


def why_not(name):
    try:
        Precision(name, CPU)
    except UserError as error:
        return str(error)
    return ""


HALF = [
    pytest.param(
        name, marks=pytest.mark.skipif(bool(why_not(name)), reason=why_not(name))
    )
    for name in ("bfloat16", "float16")
]


def test_what_cannot_be_had_is_refused():
    """Every device computes in float32; a precision is had or refused with the way out."""
    assert why_not("float32") == ""
    for name in ("bfloat16", "float16"):
        assert why_not(name) == "" or "choose float32" in why_not(name)


@pytest.mark.parametrize("name", HALF)
@pytest.mark.parametrize("kind", MECHANISMS)
def test_gradient_is_close_to_that_of_float32(make, batch, name, kind):
    whole = gradient(make(exp="a", kind=kind), [batch])
    half = make(exp="b", kind=kind, precision=name)
    dtypes = set()
    half.model.encoder.blocks[0].attention.out.register_forward_hook(
        lambda _, __, out: dtypes.add(out.dtype)
    )
    found = gradient(half, [batch])
    assert dtypes == {half.precision.dtype} and found.dtype == torch.float32
    assert torch.nn.functional.cosine_similarity(found, whole, dim=0) > 0.98
    assert found.norm() == pytest.approx(float(whole.norm()), rel=0.05)


@pytest.mark.parametrize("name", HALF)
def test_interrupted_and_resumed_equals_undisturbed(make, tmp_path, name):
    make(exp="whole", precision=name, max_steps=6, save_every=3).run()
    part = make(exp="part", precision=name, max_steps=6, save_every=3)
    update = part._update

    def stop():
        if part.progress.step == 5:
            raise KeyboardInterrupt
        return update()

    part._update = stop
    with pytest.raises(KeyboardInterrupt):
        part.run()
    make(exp="part", precision=name, max_steps=6, save_every=3).run()
    one, other = (
        ckpt.load_checkpoint(tmp_path / d / "last.pt") for d in ("whole", "part")
    )
    assert one["precision"] == other["precision"]
    for key, value in one["model"].items():
        assert torch.equal(value, other["model"][key]), key


class Scaled(Precision):
    """The scale of float16 with computations in float32, which every device has."""

    PATIENCE = 3

    def __init__(self):
        super().__init__("float32", CPU)
        self.scales, self.scale = True, self.FIRST


def test_the_scale_changes_no_gradient(make, batch):
    scaled = make(exp="b")
    scaled.precision = Scaled()
    expected = gradient(make(exp="a"), [batch, batch])
    torch.testing.assert_close(gradient(scaled, [batch, batch]), expected)


def test_an_overflow_costs_a_step_and_halves_the_scale(make, batch, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    trainer = make()
    trainer.precision = Scaled()
    weight = trainer.model.joiner.output.weight
    before = weight.detach().clone()
    limit = trainer.precision.FIRST / 4

    def overflow(grad):
        return grad * float("inf") if trainer.precision.scale > limit else grad

    hook = trainer.model.encoder.subsampling.linear.weight.register_hook(overflow)
    for _ in range(2):
        trainer._step([batch])
    assert torch.equal(weight, before) and trainer.precision.scale == limit
    assert (
        trainer.progress.skipped_steps == 0 and f"scaled by {limit:g} " in caplog.text
    )
    assert not (tmp_path / "exp/bad-steps").exists()
    for _ in range(3):
        trainer._step([batch])
    assert not torch.equal(weight, before) and trainer.precision.scale == 2 * limit
    hook.remove()
    # At the least scale it is not the scale's fault.
    trainer.precision.scale = trainer.precision.LEAST
    trainer.model.joiner.output.weight.register_hook(lambda g: g * float("nan"))
    trainer._step([batch])
    assert trainer.progress.skipped_steps == 1
    assert trainer.precision.scale == trainer.precision.LEAST

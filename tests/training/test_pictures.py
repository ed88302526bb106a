"""Pictures of attention and of the lattice."""

import pytest
import torch

from icefall_attn.attention import MECHANISMS
from icefall_attn.training.pictures import draw, occupation


@pytest.mark.parametrize("kind", list(MECHANISMS))
def test_drawing_changes_nothing(make, batch, kind):
    trainer = make(kind=kind)
    model = trainer.model.eval()
    before = model.encode(batch.features, batch.feature_lengths)[0]
    figures = draw(model.train(), batch, trainer.config.loss)
    assert set(figures) == {"attention", "lattice"}
    assert all(module.training for module in model.modules())
    after = model.eval().encode(batch.features, batch.feature_lengths)[0]
    assert torch.equal(before, after)


def test_a_path_leaves_every_frame_by_one_blank(make, batch):
    trainer = make()
    model = trainer.model.eval()
    alive = occupation(model, batch, trainer.config.loss)
    frames = int(model.encode(batch.features, batch.feature_lengths)[1][0])
    torch.testing.assert_close(
        alive.sum(dim=0)[:frames], torch.ones(frames), rtol=1e-3, atol=1e-3
    )

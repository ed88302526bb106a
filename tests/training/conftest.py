"""Small trainings."""

import pytest
from small_training import make_config

from icefall_attn.data.loader import eval_loader
from icefall_attn.training.group import Group
from icefall_attn.training.trainer import Trainer
from icefall_attn.training.usable import UtteranceFilter


@pytest.fixture
def make(corpus_dir, tokenizer, tmp_path):
    """Makes a trainer, in whatever process, that goes on where one of the same ``exp`` stopped."""

    def trainer(group=Group(), exp="exp", kind="rel_pos", **train):
        config = make_config(corpus_dir, tmp_path / exp, **train)
        config.model.vocab_size = tokenizer.vocab_size
        config.model.encoder.attention.kind = kind
        (tmp_path / exp).mkdir(exist_ok=True)
        tokenizer.save(tmp_path / exp / "lang")
        made = Trainer(config, tokenizer, group)
        made.resume()
        return made

    return trainer


@pytest.fixture
def batch(corpus_dir, tokenizer):
    """Utterances that can be trained on."""
    data = make_config(corpus_dir, "").data
    batch = next(iter(eval_loader(data.train_cuts, data, tokenizer, 16.0)))
    return UtteranceFilter()(batch)

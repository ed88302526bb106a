"""A tiny experiment instead of a trained one."""

from types import SimpleNamespace

import pytest
import torch
import yaml

from icefall_attn.data.loader import DataConfig

LETTERS = ["<blk>", "<sos/eos>", "<unk>", "A", "B"]


class Letters:
    """Tokens are words: A and B."""

    tokens = LETTERS
    vocab_size = len(LETTERS)

    def decode(self, ids):
        return " ".join(LETTERS[i] for i in ids)


class EchoTransducer(torch.nn.Module):
    """Emits in each encoder frame (every 4th feature frame) the token that feature 0 names.

    ``limit``: more utterances than that at once raise the allocator's error.
    """

    blank_id = 0
    vocab_size = len(LETTERS)

    def __init__(self, limit=1000):
        super().__init__()
        self.limit = limit
        self.batch_sizes = []
        self.predictor = SimpleNamespace(
            init_state=lambda n, device: [torch.zeros(n, 1)],
            step=lambda tokens, state: (torch.zeros(len(tokens), 1), state),
        )
        self.joiner = _Joiner()

    def encode(self, features, lengths):
        self.batch_sizes.append(len(lengths))
        if len(lengths) > self.limit:
            raise RuntimeError(
                "[enforce fail] DefaultCPUAllocator: can't allocate memory"
            )
        tokens = features[:, ::4, 0].long().clamp(0, len(LETTERS) - 1)
        out = torch.nn.functional.one_hot(tokens, len(LETTERS)).float() * 50.0
        return out, (lengths + 3) // 4


class _Joiner:
    def project_encoder(self, x):
        return x

    def project_predictor(self, x):
        return x

    def __call__(self, enc, pred):
        return enc + pred


@pytest.fixture
def experiment(monkeypatch):
    """What `load_experiment` returns, whatever directory it is asked for."""
    made = SimpleNamespace(
        model=EchoTransducer(),
        tokenizer=Letters(),
        config=SimpleNamespace(data=DataConfig(num_workers=0)),
        name="best_avg-5",
        asked=None,
    )

    def load_experiment(*arguments):
        made.asked = arguments
        return made

    monkeypatch.setattr("icefall_attn.bin.options.load_experiment", load_experiment)
    return made


@pytest.fixture
def train_options(corpus_dir, tokenizer, tmp_path):
    """A tiny run, as options of the program."""
    tokenizer.save(tmp_path / "lang")
    config = {
        "data": {
            "train_cuts": [str(corpus_dir / "train.jsonl.gz")],
            "valid_cuts": [str(corpus_dir / "more.jsonl.gz")],
            "lang_dir": str(tmp_path / "lang"),
            "max_duration": 6.0,
            "num_buckets": 3,
            "num_workers": 1,
        },
        "model": {
            "encoder": {
                "dim": 8, "heads": 2, "num_layers": 1, "feed_forward_dim": 16,
                "kernel_size": 3, "subsampling_channels": 4,
            },
            "predictor": {"dim": 8},
            "joiner_dim": 8,
        },
        "optim": {"warm_steps": 5},
        "train": {"max_steps": 60, "save_every": 5, "log_every": 5, "tensorboard": False},
    }  # fmt: skip
    path = tmp_path / "train.yaml"
    path.write_text(yaml.safe_dump(config))
    return ["--config", str(path)]

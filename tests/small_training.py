"""A small training run, for tests of the trainer."""

import torch

from icefall_attn.config import RunConfig, from_dict, to_dict


def make_config(corpus_dir, exp_dir, **train):
    values = to_dict(RunConfig())
    values["exp_dir"] = str(exp_dir)
    values["data"].update(
        train_cuts=[str(corpus_dir / "train.jsonl.gz")],
        valid_cuts=[str(corpus_dir / "more.jsonl.gz")],
        max_duration=10.0,
        num_buckets=3,
        num_workers=0,
        max_utterance=1.9,
    )
    values["model"].update(joiner_dim=8, ctc=True)
    values["model"]["encoder"].update(
        dim=8, heads=2, num_layers=1, feed_forward_dim=16, kernel_size=3, subsampling_channels=4,
        conv_norm="batch",
    )  # fmt: skip
    values["model"]["predictor"].update(dim=8)
    values["loss"].update(warm_steps=2)
    values["optim"].update(warm_steps=4, lr=1e-2)
    values["train"].update(
        {"num_epochs": 3, "tensorboard": False, "log_every": 2, **train}
    )
    return from_dict(RunConfig, values)


def gradient(trainer, batches):
    """The gradient of one step, without dropout, augmentation or batch statistics."""
    trainer.model.eval()
    kept = {}

    def keep():
        kept["gradient"] = torch.cat(trainer.optimizer.grads)
        return True

    trainer._update = keep
    trainer.progress.step = 0  # the losses' weights depend on it
    trainer._step(batches)
    return kept["gradient"]

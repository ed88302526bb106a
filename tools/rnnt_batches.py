"""Inputs of joiner and loss for benchmarks: from random weights, or from a trained experiment."""

from dataclasses import dataclass
from typing import List

import torch
from torch import Tensor

from icefall_attn.data.loader import eval_loader
from icefall_attn.nn.lengths import subsampled
from icefall_attn.training.experiment import Experiment, load_experiment

NEVER = -20.0  # logit of a token that nobody expects


@dataclass
class Shape:
    """Sizes of a batch: utterances, encoder frames, labels, joiner's width, tokens."""

    size: int
    frames: int
    labels: int
    dim: int
    vocab: int


def random_batch(shape: Shape) -> dict:
    """Inputs by random weights, all utterances of one length."""
    torch.manual_seed(0)
    size, frames, labels, vocab = shape.size, shape.frames, shape.labels, shape.vocab
    return _leaves(
        {
            "simple_encoder": 0.1 * torch.randn(size, frames, vocab),
            "simple_predictor": 0.1 * torch.randn(size, labels + 1, vocab),
            "encoder": torch.randn(size, frames, shape.dim),
            "predictor": torch.randn(size, labels + 1, shape.dim),
            "weight": torch.randn(vocab, shape.dim) / shape.dim**0.5,
            "bias": torch.zeros(vocab),
            "labels": torch.randint(1, vocab, (size, labels)),
            "label_lengths": torch.full((size,), labels),
            "lengths": torch.full((size,), frames),
        }
    )


@torch.no_grad()
def trained_batch(shape: Shape, exp_dir: str, cuts: str) -> dict:
    """Inputs by a trained model on real speech, widened to ``shape.dim`` and ``shape.vocab``.

    Raises:
      SystemExit: the model is wider than that, or there is too little speech.
    """
    experiment = load_experiment(exp_dir, 1, "valid-loss", None)
    model = experiment.model.eval()
    own_dim, own_vocab = model.config.joiner_dim, model.vocab_size
    if own_dim > shape.dim or own_vocab > shape.vocab:
        raise SystemExit(
            f"the model of {exp_dir} has J = {own_dim} and V = {own_vocab}, more than asked for"
        )
    speech = _join_utterances(experiment, cuts, shape)
    lengths = torch.tensor([len(features) for features, _ in speech])
    features = torch.nn.utils.rnn.pad_sequence([f for f, _ in speech], True)
    labels = torch.zeros(shape.size, shape.labels, dtype=torch.int64)
    for row, (_, tokens) in zip(labels, speech):
        row[: len(tokens)] = torch.tensor(tokens)
    encoder_out, lengths = model.encode(features, lengths)
    padding = shape.frames - encoder_out.size(1)
    encoder_out = torch.nn.functional.pad(encoder_out, (0, 0, 0, padding))
    predicted = model.predictor(labels)
    output = model.joiner.output
    wider, more = shape.dim - own_dim, shape.vocab - own_vocab
    weight = torch.randn(more, own_dim) * float(output.weight.std())
    return _leaves(
        {
            "simple_encoder": _widen(model.simple_encoder(encoder_out), more, NEVER),
            "simple_predictor": _widen(model.simple_predictor(predicted), more, 0.0),
            "encoder": _widen(model.joiner.project_encoder(encoder_out), wider, 0.0),
            "predictor": _widen(model.joiner.project_predictor(predicted), wider, 0.0),
            "weight": _widen(torch.cat([output.weight, weight]), wider, 0.0),
            "bias": _widen(output.bias, more, NEVER),
            "labels": labels,
            "label_lengths": torch.tensor([len(tokens) for _, tokens in speech]),
            "lengths": lengths,
        }
    )


def _join_utterances(experiment: Experiment, cuts: str, shape: Shape) -> List[tuple]:
    """``shape.size`` pairs of features and tokens, each of successive utterances."""
    done: List[tuple] = []
    features = torch.empty(0, experiment.config.model.encoder.feature_dim)
    tokens: List[int] = []
    for batch in eval_loader(cuts, experiment.config.data, experiment.tokenizer, 60.0):
        for i, length in enumerate(batch.feature_lengths.tolist()):
            longer = torch.cat([features, batch.features[i, :length]])
            more = tokens + batch.tokens[i]
            if subsampled(len(longer)) > shape.frames or len(more) > shape.labels:
                if tokens:
                    done.append((features, tokens))
                longer, more = batch.features[i, :length], batch.tokens[i]
            features, tokens = longer, more
            if len(done) == shape.size:
                return done
    raise SystemExit(f"{cuts} has too little speech for {shape.size} utterances")


def _widen(x: Tensor, count: int, value: float) -> Tensor:
    return torch.nn.functional.pad(x, (0, count), value=value)


def _leaves(batch: dict) -> dict:
    return {
        name: value.detach().requires_grad_() if value.is_floating_point() else value
        for name, value in batch.items()
    }

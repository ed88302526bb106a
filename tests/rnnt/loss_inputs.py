"""What the tests of the loss share: backends, a ragged batch, comparisons."""

import pytest
import torch
from torch import nn

from icefall_attn.rnnt import lattice
from icefall_attn.rnnt.config import LossConfig
from icefall_attn.rnnt.pruned import full_loss, pruned_transducer_loss

BACKENDS = [
    pytest.param(
        "k2",
        marks=pytest.mark.skipif(bool(lattice.why_no_k2()), reason=lattice.why_no_k2()),
    ),
    "torch",
]


class Inputs:
    """A ragged batch: an empty transcript, more labels than others have frames."""

    def __init__(self, counts=(6, 7, 1, 0), lengths=(12, 7, 5, 3), vocab=9, dim=6):
        size, u, t = len(counts), max(counts), max(lengths)
        make = lambda *shape: torch.randn(*shape, requires_grad=True)
        self.am, self.lm = make(size, t, vocab), make(size, u + 1, vocab)
        self.encoder, self.predictor = make(size, t, dim), make(size, u + 1, dim)
        self.output = nn.Linear(dim, vocab)
        self.labels = torch.randint(1, vocab, (size, u))
        self.counts, self.lengths = torch.tensor(counts), torch.tensor(lengths)

    def losses(self, **options):
        return pruned_transducer_loss(
            simple_encoder=self.am,
            simple_predictor=self.lm,
            encoder=self.encoder,
            predictor=self.predictor,
            output=self.output,
            labels=self.labels,
            label_lengths=self.counts,
            lengths=self.lengths,
            config=LossConfig(**{"negligible": 0.0, **options}),
        )

    def full(self, **options):
        hidden = torch.tanh(self.encoder[:, :, None] + self.predictor[:, None])
        config = LossConfig(**options)
        return full_loss(
            self.output(hidden), self.labels, self.counts, self.lengths, config
        )

    @property
    def tensors(self):
        return [
            self.am,
            self.lm,
            self.encoder,
            self.predictor,
            *self.output.parameters(),
        ]

    def row(self, index):
        """One utterance alone, without padding."""
        alone = Inputs.__new__(Inputs)
        u, t, pick = (
            int(self.counts[index]),
            int(self.lengths[index]),
            slice(index, index + 1),
        )
        alone.am, alone.encoder = self.am[pick, :t], self.encoder[pick, :t]
        alone.lm, alone.predictor = (
            self.lm[pick, : u + 1],
            self.predictor[pick, : u + 1],
        )
        alone.labels, alone.output = self.labels[pick, :u], self.output
        alone.counts, alone.lengths = self.counts[pick], self.lengths[pick]
        return alone


def close(one, other, rtol=1e-4, atol=1e-5):
    torch.testing.assert_close(one, other, rtol=rtol, atol=atol)


def grads(loss, tensors):
    found = torch.autograd.grad(
        loss.sum(), tensors, retain_graph=True, allow_unused=True
    )
    return [torch.zeros_like(t) if g is None else g for g, t in zip(found, tensors)]

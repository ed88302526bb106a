"""The joint network."""

import torch
from torch import Tensor, nn


class Joiner(nn.Module):
    """``W tanh(U h_enc + b + V h_pred)``; the two projections can be taken out of loops."""

    def __init__(self, encoder_dim: int, predictor_dim: int, dim: int, vocab_size: int):
        super().__init__()
        self.encoder_projection = nn.Linear(encoder_dim, dim)
        self.predictor_projection = nn.Linear(predictor_dim, dim, bias=False)
        self.output = nn.Linear(dim, vocab_size)

    def project_encoder(self, encoder_out: Tensor) -> Tensor:
        """``(..., D)`` to ``(..., J)``."""
        return self.encoder_projection(encoder_out)

    def project_predictor(self, predictor_out: Tensor) -> Tensor:
        """``(..., D_p)`` to ``(..., J)``."""
        return self.predictor_projection(predictor_out)

    def forward(self, encoder: Tensor, predictor: Tensor) -> Tensor:
        """Projected outputs that broadcast, ``(..., J)``, to ``(..., V)`` logits."""
        return self.output(torch.tanh(encoder + predictor))

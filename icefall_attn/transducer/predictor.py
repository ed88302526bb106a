"""Prediction networks: what the labels so far say of the next one."""

from dataclasses import dataclass
from typing import List, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from icefall_attn.nn.dropout import Dropout

BLANK_ID = 0
State = List[Tensor]


@dataclass
class PredictorConfig:
    """The prediction network.

    Attributes:
      kind: ``lstm`` (the whole history) or ``stateless`` (the last ``context_size`` labels).
      dim: width of the embedding and of the output.
      num_layers: LSTM layers.
      context_size: labels seen by the stateless predictor.
      dropout: after the embedding and the LSTM.
    """

    kind: str = "lstm"
    dim: int = 256
    num_layers: int = 1
    context_size: int = 2
    dropout: float = 0.1

    def __post_init__(self):
        if self.kind not in PREDICTORS:
            raise ValueError(
                f"predictor.kind must be one of {', '.join(PREDICTORS)}, not {self.kind!r}"
            )
        for name in ("dim", "num_layers", "context_size"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"predictor.{name} must be at least 1, not {getattr(self, name)}"
                )


class LstmPredictor(nn.Module):
    """Embedding and LSTM. The blank's embedding stands for the start of a sentence."""

    def __init__(self, vocab_size: int, config: PredictorConfig):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, config.dim)
        self.dropout = Dropout(config.dropout)
        self.lstm = nn.LSTM(config.dim, config.dim, config.num_layers, batch_first=True)

    def forward(self, labels: Tensor) -> Tensor:
        """labels: ``(B, U)``, anything beyond an utterance's end. Returns ``(B, U + 1, D)``."""
        labels = F.pad(labels, (1, 0), value=BLANK_ID)
        out, _ = self.lstm(self.dropout(self.embedding(labels)))
        return self.dropout(out)

    def init_state(self, batch_size: int, device: torch.device) -> State:
        """State before the start symbol: hidden and cell values, each ``(N, layers, D)``."""
        size = (batch_size, self.lstm.num_layers, self.lstm.hidden_size)
        weight = self.embedding.weight
        return [torch.zeros(size, device=device, dtype=weight.dtype) for _ in range(2)]

    def step(self, labels: Tensor, state: State) -> Tuple[Tensor, State]:
        """One label further: ``(N,)`` labels and their states to ``(N, D)`` and new states."""
        hidden = (
            state[0].transpose(0, 1).contiguous(),
            state[1].transpose(0, 1).contiguous(),
        )
        out, hidden = self.lstm(self.embedding(labels).unsqueeze(1), hidden)
        return out.squeeze(1), [hidden[0].transpose(0, 1), hidden[1].transpose(0, 1)]


class StatelessPredictor(nn.Module):
    """Embedding and a depthwise convolution over the last labels (Ghodsi et al. 2020)."""

    def __init__(self, vocab_size: int, config: PredictorConfig):
        super().__init__()
        self.context_size = config.context_size
        self.embedding = nn.Embedding(vocab_size, config.dim)
        self.dropout = Dropout(config.dropout)
        self.conv = nn.Conv1d(
            config.dim, config.dim, config.context_size, groups=config.dim, bias=False
        )

    def forward(self, labels: Tensor) -> Tensor:
        """labels: ``(B, U)``. Returns ``(B, U + 1, D)``."""
        return self._predict(F.pad(labels, (self.context_size, 0), value=BLANK_ID))

    def _predict(self, labels: Tensor) -> Tensor:
        embedded = self.dropout(self.embedding(labels)).transpose(1, 2)
        return F.relu(self.conv(embedded)).transpose(1, 2)

    def init_state(self, batch_size: int, device: torch.device) -> State:
        """State before the start symbol: the labels before it, ``(N, context_size - 1)``."""
        size = (batch_size, self.context_size - 1)
        return [torch.full(size, BLANK_ID, dtype=torch.int64, device=device)]

    def step(self, labels: Tensor, state: State) -> Tuple[Tensor, State]:
        """One label further: ``(N,)`` labels and their states to ``(N, D)`` and new states."""
        context = torch.cat((state[0], labels.unsqueeze(1)), dim=1)
        return self._predict(context).squeeze(1), [context[:, 1:]]


PREDICTORS = {"lstm": LstmPredictor, "stateless": StatelessPredictor}


def make_predictor(vocab_size: int, config: PredictorConfig) -> nn.Module:
    """The prediction network that ``config`` names."""
    return PREDICTORS[config.kind](vocab_size, config)

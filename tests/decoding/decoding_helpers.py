"""Small transducers and slow, obvious searches to compare with."""

import itertools
from typing import Dict, List, Tuple

import torch
from torch import Tensor, nn

from icefall_attn.decoding import Hypothesis


class LstmPredictor(nn.Module):
    """Embedding and LSTM: the whole history matters."""

    def __init__(self, vocab: int, dim: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, dim)
        self.lstm = nn.LSTM(dim, dim, num_layers=2, batch_first=True)
        self.dim = dim
        self.steps = 0

    def init_state(self, batch_size, device):
        return [torch.zeros(batch_size, 2, self.dim, device=device) for _ in range(2)]

    def step(self, tokens, state):
        self.steps += len(tokens)
        h, c = (s.transpose(0, 1).contiguous() for s in state)
        out, (h, c) = self.lstm(self.embedding(tokens).unsqueeze(1), (h, c))
        return out.squeeze(1), [h.transpose(0, 1), c.transpose(0, 1)]


class StatelessPredictor(nn.Module):
    """A function of the last two tokens."""

    context_size = 2

    def __init__(self, vocab: int, dim: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, dim)
        self.linear = nn.Linear(2 * dim, dim)
        self.steps = 0

    def init_state(self, batch_size, device):
        return [torch.zeros(batch_size, 2, dtype=torch.int64, device=device)]

    def step(self, tokens, state):
        self.steps += len(tokens)
        context = torch.cat([state[0][:, 1:], tokens.unsqueeze(1)], dim=1)
        return self.linear(self.embedding(context).flatten(1)), [context]


class Joiner(nn.Module):
    def __init__(self, dim: int, vocab: int) -> None:
        super().__init__()
        self.enc, self.pred = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.out = nn.Linear(dim, vocab)

    def project_encoder(self, x):
        return self.enc(x)

    def project_predictor(self, x):
        return self.pred(x)

    def forward(self, enc, pred):
        return self.out(torch.tanh(enc + pred))


class TinyTransducer(nn.Module):
    """Random weights, large enough that histories and frames matter.

    ``blank_bias`` is added to blank's logit; +-1e4 makes a joiner that says nothing else or
    never says it.
    """

    blank_id = 0

    def __init__(self, kind: str, vocab=4, dim=6, seed=0, blank_bias=0.0) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            make = {"lstm": LstmPredictor, "stateless": StatelessPredictor}[kind]
            self.predictor = make(vocab, dim)
            self.joiner = Joiner(dim, vocab)
            for p in self.parameters():
                p.data.normal_(std=0.9)
        self.joiner.out.bias.data[0] += blank_bias
        self.vocab_size = vocab
        self.eval().requires_grad_(False)

    def log_probs(self, encoder_out: Tensor, tokens: Tuple[int, ...]) -> Tensor:
        """(T', V) of one utterance (T', D) after ``tokens``, by the predictor from scratch."""
        state = self.predictor.init_state(1, "cpu")
        for token in (0, *tokens):
            out, state = self.predictor.step(torch.tensor([token]), state)
        pred = self.joiner.project_predictor(out)
        enc = self.joiner.project_encoder(encoder_out)
        return self.joiner(enc, pred).log_softmax(-1)


def random_batch(lengths: List[int], dim=6, seed=0) -> Tuple[Tensor, Tensor]:
    """Encoder output with garbage (NaN) past the end of every utterance."""
    generator = torch.Generator().manual_seed(seed)
    out = torch.randn(len(lengths), max(lengths), dim, generator=generator) * 2
    for b, length in enumerate(lengths):
        out[b, length:] = torch.nan
    return out, torch.tensor(lengths)


def naive_greedy(model, encoder_out: Tensor, max_symbols: int) -> Hypothesis:
    hypothesis = Hypothesis()
    for t in range(len(encoder_out)):
        for _ in range(max_symbols):
            row = model.log_probs(encoder_out[t : t + 1], tuple(hypothesis.tokens))[0]
            best = int(row.argmax())
            hypothesis.score += float(row[best])
            if best == model.blank_id:
                break
            hypothesis.tokens.append(best)
            hypothesis.frames.append(t)
    return hypothesis


def enumerate_alignments(model, encoder_out: Tensor) -> Dict[Tuple[int, ...], float]:
    """Log-probability of every alignment with at most one symbol a frame, as labels with
    blanks in between."""
    cache: Dict[Tuple[int, ...], Tensor] = {}
    scores = {}
    frames = range(len(encoder_out))
    for path in itertools.product(range(model.vocab_size), repeat=len(encoder_out)):
        score, history = 0.0, ()
        for t in frames:
            if history not in cache:
                cache[history] = model.log_probs(encoder_out, history)
            score += float(cache[history][t, path[t]])
            if path[t] != model.blank_id:
                history += (path[t],)
        scores[path] = score
    return scores


def labels(path: Tuple[int, ...]) -> Tuple[int, ...]:
    return tuple(token for token in path if token != 0)


def sequence_scores(alignments: Dict[Tuple[int, ...], float]) -> Dict:
    """Log-sum over the alignments of each label sequence."""
    groups: Dict[Tuple[int, ...], List[float]] = {}
    for path, score in alignments.items():
        groups.setdefault(labels(path), []).append(score)
    return {
        tokens: float(torch.tensor(some, dtype=torch.float64).logsumexp(0))
        for tokens, some in groups.items()
    }

"""Which predictor state a context of k2's search gets."""

import pytest
import torch
from decoding_helpers import TinyTransducer

from icefall_attn.decoding.contexts import Contexts


def read(model, *tokens):
    """Projected predictor output after these tokens, from scratch."""
    state = model.predictor.init_state(1, "cpu")
    for token in (0, *tokens):
        out, state = model.predictor.step(torch.tensor([token]), state)
    return model.joiner.project_predictor(out)[0]


def update(contexts, *streams):
    """Contexts of each stream as lists of tokens."""
    splits = [0]
    for stream in streams:
        splits.append(splits[-1] + len(stream))
    symbols = torch.tensor([context for stream in streams for context in stream])
    contexts.update(torch.tensor(splits), symbols)


def check(contexts, model, *histories):
    for row, history in zip(contexts.predictor.output, histories):
        torch.testing.assert_close(row, read(model, *history))
    assert len(contexts.predictor.output) == len(histories)


def log_probs(rows):
    return torch.tensor(rows).log()


@pytest.fixture
def model():
    return TinyTransducer("lstm", vocab=4)


def test_kept_new_and_dropped_contexts(model):
    contexts = Contexts(model, 2, 2, torch.device("cpu"))
    update(contexts, [[0, 0]], [[0, 0]])
    check(contexts, model, (), ())
    contexts.score(log_probs([[0.4, 0.1, 0.2, 0.3]] * 2))
    # Stream 0 keeps the empty context and opens two; stream 1 has moved on.
    update(contexts, [[0, 0], [0, 1], [0, 3]], [[0, 2]])
    check(contexts, model, (), (1,), (3,), (2,))
    contexts.score(log_probs([[0.4, 0.1, 0.2, 0.3]] * 4))
    update(contexts, [[0, 1], [1, 1]], [[0, 2], [2, 3]])
    check(contexts, model, (1,), (1, 1), (2,), (2, 3))
    contexts.score(log_probs([[0.4, 0.1, 0.2, 0.3]] * 4))
    update(contexts, [[1, 1]], [[2, 3]])
    check(contexts, model, (1, 1), (2, 3))
    contexts.score(log_probs([[0.4, 0.1, 0.2, 0.3]] * 2))
    # The full history goes on behind the two tokens that k2 knows.
    update(contexts, [[1, 2]], [[3, 1]])
    check(contexts, model, (1, 1, 2), (2, 3, 1))


@pytest.mark.parametrize("better", [1, 2])
def test_new_context_follows_the_best_path(model, better):
    """Both 1 and 2 lead to 3; the state is that of the more probable way."""
    contexts = Contexts(model, 1, 1, torch.device("cpu"))
    update(contexts, [[0]])
    first = [0.1, 0.2, 0.2, 0.5]
    first[better] = 0.4
    contexts.score(log_probs([first]))
    update(contexts, [[1], [2]])
    check(contexts, model, (1,), (2,))
    contexts.score(log_probs([[0.5, 0.1, 0.1, 0.3]] * 2))
    update(contexts, [[3]])
    check(contexts, model, (better, 3))
    # Later frames count, too: what follows is judged by the whole path.
    contexts.score(log_probs([[0.5, 0.1, 0.1, 0.3]]))
    update(contexts, [[3], [1]])
    check(contexts, model, (better, 3), (better, 3, 1))


def test_path_scores_include_the_frames_of_blanks(model):
    """1 begins better, but what it pays for blanks makes 2 the better way to 3."""
    contexts = Contexts(model, 1, 1, torch.device("cpu"))
    update(contexts, [[0]])
    contexts.score(log_probs([[0.1, 0.5, 0.3, 0.1]]))
    update(contexts, [[1], [2]])
    contexts.score(log_probs([[0.1, 0.3, 0.3, 0.3], [0.7, 0.1, 0.1, 0.1]]))
    update(contexts, [[1], [2]])
    contexts.score(log_probs([[0.2, 0.1, 0.1, 0.6]] * 2))
    update(contexts, [[3]])
    check(contexts, model, (2, 3))


def test_streams_do_not_mix(model):
    """The context 3 of stream 1 comes from stream 1, though stream 0 has a better path."""
    contexts = Contexts(model, 2, 1, torch.device("cpu"))
    update(contexts, [[0]], [[0]])
    contexts.score(log_probs([[0.1, 0.8, 0.05, 0.05], [0.7, 0.1, 0.1, 0.1]]))
    update(contexts, [[1]], [[2]])
    contexts.score(log_probs([[0.1, 0.1, 0.1, 0.7], [0.7, 0.1, 0.1, 0.1]]))
    update(contexts, [[1]], [[3]])
    check(contexts, model, (1,), (2, 3))

"""The best hypotheses of k2's lattices."""

import heapq
from typing import Dict, List, Optional, Tuple

import torch

from icefall_attn.decoding.results import Hypothesis


def lattice_nbest(lattice, nbest: int) -> List[List[Hypothesis]]:
    """The ``nbest`` different token sequences of every lattice by their best paths, exactly.

    Args:
      lattice: k2.Fsa with 3 axes, top-sorted, from ``RnntDecodingStreams.format_output``: one
        arc a frame, label 0 is blank, a last arc with label -1 to the final state.
      nbest: most hypotheses per lattice.

    Returns:
      Hypotheses of each lattice, best first; a score is that of the best path.
    """
    shape = lattice.arcs.shape()
    states = shape.row_splits(1).tolist()
    begins = shape.row_splits(2).tolist()
    arcs = lattice.arcs.values()[:, 1:3].tolist()  # (destination, label)
    scores = lattice.scores.tolist()
    ahead = lattice.get_backward_scores(
        use_double_scores=True, log_semiring=False
    ).tolist()
    results = []
    for first, end in zip(states, states[1:]):
        graph = _Lattice(begins[first : end + 1], arcs, scores, ahead[first:end])
        # Nothing is found only if the model's output was not a number.
        results.append(graph.search(nbest) or [Hypothesis(score=-torch.inf)])
    return results


def add_up_paths(lattice, results: List[List[Hypothesis]]) -> None:
    """Makes each hypothesis's score the log-sum of its paths in the lattice.

    Args:
      lattice: see `lattice_nbest`.
      results: its answer, changed in place.
    """
    import k2

    # Only one path spells nothing: its score is right already.
    owners = [(i, h) for i, found in enumerate(results) for h in found if h.tokens]
    if not owners:
        return
    device = lattice.device
    sequences = k2.linear_fsa([h.tokens for _, h in owners], device)
    paths = k2.intersect_device(
        k2.arc_sort(lattice),
        k2.add_epsilon_self_loops(sequences),
        torch.tensor([i for i, _ in owners], dtype=torch.int32, device=device),
        sorted_match_a=True,
    )
    totals = k2.top_sort(k2.connect(paths)).get_tot_scores(
        use_double_scores=True, log_semiring=True
    )
    for (_, hypothesis), total in zip(owners, totals.tolist()):
        hypothesis.score = total


class _Lattice:
    """Best-first search with the exact score of what lies ahead of every state.

    Two paths to one state with the same tokens have the same continuations, and so have
    the n best different token sequences of a state: the first arrival of a sequence at a
    state is the only one to follow, and of every state no more than ``nbest`` of them.
    """

    def __init__(self, begins, arcs, scores, ahead) -> None:
        self.begins, self.arcs, self.scores, self.ahead = begins, arcs, scores, ahead

    def search(self, nbest: int) -> List[Hypothesis]:
        found: List[Hypothesis] = []
        if not self.ahead or not self.ahead[0] > -torch.inf:
            return found
        final = len(self.ahead) - 1
        children: Dict[Tuple[int, int], int] = {}  # (sequence, token) -> sequence
        seen: Dict[int, set] = {}
        # (-(score so far + ahead), tie-breaker, state, score, frame, sequence, emissions)
        queue: List[tuple] = [(-self.ahead[0], 0, 0, 0.0, 0, 0, None)]
        pushed = 1
        while queue and len(found) < nbest:
            _, _, state, score, frame, sequence, emissions = heapq.heappop(queue)
            arrived = seen.setdefault(state, set())
            if sequence in arrived or len(arrived) >= nbest:
                continue
            arrived.add(sequence)
            if state == final:
                found.append(_read(emissions, score))
                continue
            for arc in range(self.begins[state], self.begins[state + 1]):
                target, label = self.arcs[arc]
                if not self.ahead[target] > -torch.inf:
                    continue
                total = score + self.scores[arc]
                following, emitted = sequence, emissions
                if label > 0:
                    key = (sequence, label)
                    following = children.setdefault(key, len(children) + 1)
                    emitted = (emissions, label, frame)
                priority = -(total + self.ahead[target])
                heapq.heappush(
                    queue,
                    (priority, pushed, target, total, frame + 1, following, emitted),
                )
                pushed += 1
        return found


def _read(emissions: Optional[tuple], score: float) -> Hypothesis:
    """Unwinds the chain (earlier emissions, token, frame)."""
    hypothesis = Hypothesis(score=score)
    while emissions is not None:
        emissions, token, frame = emissions
        hypothesis.tokens.append(token)
        hypothesis.frames.append(frame)
    hypothesis.tokens.reverse()
    hypothesis.frames.reverse()
    return hypothesis

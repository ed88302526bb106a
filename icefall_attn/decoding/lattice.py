"""The best hypotheses of k2's lattices."""

import heapq
from typing import Dict, List, Optional, Tuple

import torch

from icefall_attn.decoding.graphs import DecodingGraph
from icefall_attn.decoding.results import Hypothesis


def lattice_nbest(
    lattice, nbest: int, graph: Optional[DecodingGraph] = None
) -> List[List[Hypothesis]]:
    """The ``nbest`` different sequences of every lattice by their best paths, exactly.

    Args:
      lattice: see `search_lattice`.
      nbest: most hypotheses per lattice.
      graph: of words, if these shall differ and be returned, instead of the tokens.

    Returns:
      Hypotheses of each lattice, best first; a score is that of the best path. A lattice
      without paths has none.
    """
    shape = lattice.arcs.shape()
    states = shape.row_splits(1).tolist()
    begins = shape.row_splits(2).tolist()
    arcs = lattice.arcs.values()[:, 1:3].tolist()  # (destination, label)
    spoken = [(label,) if label > 0 else () for _, label in arcs]
    if graph is not None:
        spoken = graph.arc_words.index(lattice.graph_arc, axis=0)[0].tolist()
        spoken = [tuple(ids) for ids in spoken]
    scores = lattice.scores.tolist()
    ahead = lattice.get_backward_scores(
        use_double_scores=True, log_semiring=False
    ).tolist()
    results = []
    for first, end in zip(states, states[1:]):
        paths = _Lattice(
            begins[first : end + 1], arcs, spoken, scores, ahead[first:end]
        )
        found = paths.search(nbest)
        for hypothesis, ids in found:
            if graph is not None:
                hypothesis.words = [graph.words[id] for id in ids]
        results.append([hypothesis for hypothesis, _ in found])
    return results


class _Lattice:
    """Best-first search with the exact score of what lies ahead of every state.

    Two paths to one state with the same sequence of what was spoken (tokens or words) have
    the same continuations, and so have the n best different sequences of a state: the first
    arrival of a sequence at a state is the only one to follow, and of every state no more
    than ``nbest`` of them.
    """

    def __init__(self, begins, arcs, spoken, scores, ahead) -> None:
        self.begins, self.arcs, self.spoken = begins, arcs, spoken
        self.scores, self.ahead = scores, ahead

    def search(self, nbest: int) -> List[Tuple[Hypothesis, List[int]]]:
        """Hypotheses and their sequences, best first."""
        found: List[Tuple[Hypothesis, List[int]]] = []
        if not self.ahead or not self.ahead[0] > -torch.inf:
            return found
        final = len(self.ahead) - 1
        # A sequence has a number; (the one before, what it adds) are kept in both directions.
        children: Dict[Tuple[int, int], int] = {}
        trail: List[Tuple[int, int]] = [(0, 0)]
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
                found.append((_read(emissions, score), _unwind(trail, sequence)))
                continue
            for arc in range(self.begins[state], self.begins[state + 1]):
                target, label = self.arcs[arc]
                if not self.ahead[target] > -torch.inf:
                    continue
                total = score + self.scores[arc]
                following, emitted = sequence, emissions
                for each in self.spoken[arc]:
                    key = (following, each)
                    following = children.setdefault(key, len(trail))
                    if following == len(trail):
                        trail.append(key)
                if label > 0:
                    emitted = (emissions, label, frame)
                priority = -(total + self.ahead[target])
                heapq.heappush(
                    queue,
                    (priority, pushed, target, total, frame + 1, following, emitted),
                )
                pushed += 1
        return found


def _unwind(trail: List[Tuple[int, int]], sequence: int) -> List[int]:
    spoken: List[int] = []
    while sequence > 0:
        sequence, each = trail[sequence]
        spoken.append(each)
    return spoken[::-1]


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

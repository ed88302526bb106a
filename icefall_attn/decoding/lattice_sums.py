"""Sums over the paths of k2's lattices."""

from typing import List, Sequence

import torch

from icefall_attn.decoding.config import SearchConfig
from icefall_attn.decoding.graphs import DecodingGraph
from icefall_attn.decoding.results import Hypothesis


def add_up_paths(lattice, results: List[List[Hypothesis]]) -> None:
    """Makes each hypothesis's score the log-sum of the paths with its tokens.

    Args:
      lattice: see `search_lattice`.
      results: hypotheses of each utterance, changed in place.
    """
    hypotheses = [h for found in results for h in found]
    if not hypotheses:
        return
    sequences = [[h.tokens for h in found] for found in results]
    totals = _total(_paths_of(sequences, lattice))
    for hypothesis, total in zip(hypotheses, totals.tolist()):
        hypothesis.score = total


def sampled_nbest(
    lattice, config: SearchConfig, graph: DecodingGraph
) -> List[List[Hypothesis]]:
    """The best sequences, of words if the graph has them, among sampled paths.

    Args:
      lattice: see `search_lattice`.
      config: ``num_paths`` are sampled after the scores were multiplied with ``nbest_scale``
        (a small scale gives more different ones); ``nbest`` sequences are returned.
      graph: of the lattice.

    Returns:
      Up to ``config.nbest`` hypotheses of each utterance, ranked by the log-sums of their paths;
      none of an utterance without paths. Tokens and frames are those of the best path.
    """
    sequences = _sample(lattice, config, graph)
    every = [(row, labels) for row, some in enumerate(sequences) for labels in some]
    results: List[List[Hypothesis]] = [[] for _ in sequences]
    if not every:
        return results
    # What each arc emits, as composition keeps it: blank is 1, token k is k + 1, nothing 0.
    lattice.emission = lattice.labels + 1
    paths = _paths_of(sequences, _of_words(lattice, graph) if graph.words else lattice)
    totals = _total(paths).tolist()
    chosen: List[List[int]] = [[] for _ in sequences]
    for index in sorted(range(len(every)), key=totals.__getitem__, reverse=True):
        row, _ = every[index]
        if len(chosen[row]) < config.nbest:
            chosen[row].append(index)
    indexes = [index for some in chosen for index in some]
    for index, emitted in zip(indexes, _best_emissions(paths, indexes)):
        row, labels = every[index]
        frames = [frame for frame, label in enumerate(emitted) if label > 1]
        tokens = [emitted[frame] - 1 for frame in frames]
        hypothesis = Hypothesis(tokens, frames, totals[index])
        if graph.words:
            hypothesis.words = [graph.words[id] for id in labels]
        results[row].append(hypothesis)
    return results


def _sample(
    lattice, config: SearchConfig, graph: DecodingGraph
) -> List[List[List[int]]]:
    """The different sequences, of words or tokens, of each lattice's sampled paths.

    k2 draws without chance but by arithmetic coding, which blows up rounding errors: where
    many paths are about as good, two batches may sample differently.
    """
    import k2

    scaled = lattice.clone()
    scaled.scores = lattice.scores * config.nbest_scale
    paths = k2.random_paths(scaled, use_double_scores=True, num_paths=config.num_paths)
    if graph.words:
        arcs = k2.ragged.index(lattice.graph_arc, paths)
        sequences = graph.arc_words.index(arcs).remove_axis(2)
    else:
        sequences = k2.ragged.index(lattice.labels.contiguous(), paths)
    # Neither blanks nor the last arc's -1.
    return sequences.remove_values_leq(0).unique()[0].tolist()


def _of_words(lattice, graph: DecodingGraph):
    """The same paths with ids of words for labels."""
    import k2

    lattice.aux_labels = graph.arc_words.index(lattice.graph_arc, axis=0)[0]
    return k2.invert(lattice)


def _paths_of(sequences: Sequence[Sequence[Sequence[int]]], lattice):
    """The paths with given labels: an Fsa for every sequence of every utterance."""
    import k2

    every = [list(sequence) for some in sequences for sequence in some]
    owners = [owner for owner, some in enumerate(sequences) for _ in some]
    paths = k2.intersect_device(
        k2.arc_sort(lattice),
        k2.add_epsilon_self_loops(k2.linear_fsa(every, lattice.device)),
        torch.tensor(owners, dtype=torch.int32, device=lattice.device),
        sorted_match_a=True,
    )
    return k2.top_sort(k2.connect(paths))


def _best_emissions(paths, indexes: List[int]) -> List[List[int]]:
    """The emission of each frame on the best path of each of some Fsas."""
    import k2

    indexes = torch.tensor(indexes, dtype=torch.int32, device=paths.device)
    best = k2.shortest_path(k2.index_fsa(paths, indexes), use_double_scores=True)
    emissions = k2.RaggedTensor(best.arcs.shape().remove_axis(1), best.emission)
    return emissions.remove_values_eq(0).tolist()


def _total(paths):
    return paths.get_tot_scores(use_double_scores=True, log_semiring=True)

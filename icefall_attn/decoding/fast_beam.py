"""k2's graph search, for stateless *and* LSTM predictors: one lattice, four ways to pick.

At most one symbol a frame; hypotheses that agree in their last H tokens (the *context*) and in
their state of the graph are one state of the search and the better path into it survives. For a
stateless predictor with H >= its context size this loses nothing. `Contexts` says what an LSTM
predictor gets as its state: the search is exact as long as no two active hypotheses share their
last H tokens.
"""

import logging
from typing import List

import torch
from torch import Tensor

from icefall_attn.decoding.config import SearchConfig
from icefall_attn.decoding.contexts import Contexts
from icefall_attn.decoding.graphs import DecodingGraph, import_k2, token_graph
from icefall_attn.decoding.greedy import greedy_search
from icefall_attn.decoding.lattice import lattice_nbest
from icefall_attn.decoding.lattice_sums import add_up_paths, sampled_nbest
from icefall_attn.decoding.results import Hypothesis, rank
from icefall_attn.errors import UserError

_LONGEST_HISTORY = 10
#: Log-probability of what must not be done.
_NEVER = -1.0e10


def fast_beam_search(
    model, encoder_out: Tensor, lengths: Tensor, config: SearchConfig
) -> List[List[Hypothesis]]:
    """The token sequences of the lattice's best paths.

    Args:
      model, encoder_out (B, T', D), lengths (B,), config: see `search`.

    Returns:
      Up to ``config.nbest`` hypotheses per utterance with different tokens: those of the best
      paths of the lattice, ranked like `modified_beam_search` ranks by what all their paths in
      the lattice add up to. Frames of tokens are those of the best path.

    Raises:
      UserError: see `search_lattice`; so do the other searches of this file.
    """
    import_k2(config, encoder_out.device)
    graph = token_graph(model.vocab_size, encoder_out.device)
    lattice = search_lattice(model, encoder_out, lengths, config, graph)
    found = lattice_nbest(lattice, config.nbest)
    add_up_paths(lattice, found)
    return [rank(hypotheses, config) or [_nothing()] for hypotheses in found]


def fast_beam_search_nbest(
    model, encoder_out: Tensor, lengths: Tensor, config: SearchConfig
) -> List[List[Hypothesis]]:
    """The most probable token sequences among sampled paths of the lattice.

    Args:
      model, encoder_out (B, T', D), lengths (B,), config: see `search`.

    Returns:
      Up to ``config.nbest`` hypotheses per utterance with different tokens, ranked by what all
      their paths in the lattice add up to. Frames of tokens are those of the best path.
    """
    import_k2(config, encoder_out.device)
    graph = token_graph(model.vocab_size, encoder_out.device)
    lattice = search_lattice(model, encoder_out, lengths, config, graph)
    found = sampled_nbest(lattice, config, graph)
    return [hypotheses or [_nothing()] for hypotheses in found]


def fast_beam_search_lg(
    model,
    encoder_out: Tensor,
    lengths: Tensor,
    config: SearchConfig,
    graph: DecodingGraph,
) -> List[List[Hypothesis]]:
    """The word sequences of the best paths through a graph of words.

    Args:
      model, encoder_out (B, T', D), lengths (B,), config: see `search`.
      graph: from `word_graph`.

    Returns:
      Up to ``config.nbest`` hypotheses per utterance with different words, ranked by their best
      paths: log-probability of the alignment plus ``ngram_lm_scale`` times that of the n-grams.
      An utterance without a complete path gets its greedy hypothesis.
    """
    lattice = search_lattice(model, encoder_out, lengths, config, graph)
    found = lattice_nbest(lattice, config.nbest, graph)
    return _or_greedy(found, model, encoder_out, lengths, config)


def fast_beam_search_nbest_lg(
    model,
    encoder_out: Tensor,
    lengths: Tensor,
    config: SearchConfig,
    graph: DecodingGraph,
) -> List[List[Hypothesis]]:
    """The most probable word sequences among sampled paths through a graph of words.

    Args:
      model, encoder_out (B, T', D), lengths (B,), config, graph: see `fast_beam_search_lg`.

    Returns:
      Up to ``config.nbest`` hypotheses per utterance with different words, ranked by what all
      their paths in the lattice add up to, n-grams included. An utterance without a complete
      path gets its greedy hypothesis.
    """
    lattice = search_lattice(model, encoder_out, lengths, config, graph)
    found = sampled_nbest(lattice, config, graph)
    return _or_greedy(found, model, encoder_out, lengths, config)


def search_lattice(
    model,
    encoder_out: Tensor,
    lengths: Tensor,
    config: SearchConfig,
    graph: DecodingGraph,
):
    """Searches all utterances at once with ``k2.RnntDecodingStreams``.

    Args:
      model, encoder_out (B, T', D), lengths (B,), config: see `search`.
      graph: what may be said.

    Returns:
      k2.Fsa with axes [utterance][state][arc], top-sorted. A path has an arc for each frame,
      with label 0 for blank; one more with label 0 that ends it; and one with label -1 to the
      final state. Of a graph of words arcs have its ``graph_arc``, 0 for blanks. An utterance
      none of whose hypotheses may end has no states.

    Raises:
      UserError: k2 cannot be imported or has no CUDA for a model on a GPU; ``history`` is
        too long for k2.
    """
    device, batch, end = encoder_out.device, encoder_out.shape[0], model.vocab_size
    k2 = import_k2(config, device)
    history = history_length(model, config, graph.fsa.shape[0])
    settings = k2.RnntDecodingConfig(
        vocab_size=end + 1,
        decoder_history_len=history,
        beam=config.fast_beam,
        max_states=config.max_states,
        max_contexts=config.max_contexts,
    )
    streams = k2.RnntDecodingStreams(
        [k2.RnntDecodingStream(graph.fsa) for _ in range(batch)], settings
    )
    projected = model.joiner.project_encoder(encoder_out)
    lengths = lengths.to(device)
    contexts = Contexts(model, batch, history, device)
    # After its last frame a stream does nothing but end; one more frame, a certain blank, is
    # needed because `format_output([n])` holds paths of n - 1 frames. Streams that are over
    # get the same blank until the longest one ends.
    for t in range(int(lengths.max()) + 2):
        shape, symbols = streams.get_contexts()
        contexts.update(shape.row_splits(1).long(), symbols.long())
        log_probs = torch.full((len(symbols), end + 1), _NEVER, device=device)
        left = lengths[contexts.stream] - t
        log_probs[left == 0, end] = 0.0
        log_probs[left < 0, model.blank_id] = 0.0
        alive = (left > 0).nonzero().squeeze(1)
        if alive.numel() > 0:
            frame = projected[contexts.stream[alive], t]
            logits = model.joiner(frame, contexts.predictor.output[alive])
            log_probs[alive, :end] = logits.float().log_softmax(dim=-1)
        contexts.score(log_probs)
        streams.advance(log_probs)
    streams.terminate_and_flush_to_streams()
    lattice = streams.format_output((lengths + 2).tolist())
    lattice.scores = lattice.scores.masked_fill(lattice.labels == -1, 0.0)
    lattice.labels = lattice.labels.masked_fill(lattice.labels == end, 0)
    return lattice


def history_length(model, config: SearchConfig, graph_states: int) -> int:
    """H: ``config.history``, or what suits the predictor within k2's bounds.

    k2 packs context and graph state into 63 bits and past them returns garbage.

    Raises:
      UserError: ``config.history`` does not fit, or not even a history of 1.
    """
    longest = 0
    while (model.vocab_size + 1) ** (longest + 1) * graph_states < 2**63:
        longest += 1
    wanted = getattr(model.predictor, "context_size", None)
    if config.history > longest or longest == 0:
        raise UserError(
            f"search.history={config.history} is too long for k2 with {model.vocab_size} "
            f"tokens and a graph of {graph_states} states; use {longest} or less, or 0"
        )
    return config.history or min(wanted or _LONGEST_HISTORY, longest)


def _or_greedy(
    found: List[List[Hypothesis]],
    model,
    encoder_out: Tensor,
    lengths: Tensor,
    config: SearchConfig,
) -> List[List[Hypothesis]]:
    """Gives the utterances without a hypothesis their greedy one."""
    missing = [row for row, hypotheses in enumerate(found) if not hypotheses]
    if missing:
        logging.warning(
            "%s: %d of %d utterances have no path to the end of a word and a sentence of the "
            "graph; greedy_search decodes them (a wider beam may help)",
            config.method,
            len(missing),
            len(found),
        )
        greedy = greedy_search(model, encoder_out[missing], lengths[missing], config)
        for row, hypotheses in zip(missing, greedy):
            found[row] = hypotheses
    return found


def _nothing() -> Hypothesis:
    """Of a lattice without paths: the model's output was not a number."""
    return Hypothesis(score=-torch.inf)

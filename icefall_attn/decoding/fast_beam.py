"""k2's graph search (fast_beam_search), for stateless *and* LSTM predictors."""

from typing import List

import torch
from torch import Tensor

from icefall_attn.decoding.config import SearchConfig
from icefall_attn.decoding.contexts import Contexts
from icefall_attn.decoding.lattice import add_up_paths, lattice_nbest
from icefall_attn.decoding.results import Hypothesis, rank
from icefall_attn.errors import UserError

#: States of k2.trivial_graph: one with a loop for every symbol, and the final one.
_GRAPH_STATES = 2
_LONGEST_HISTORY = 10
#: Log-probability of what a frame past the end must not do.
_NEVER = -1.0e10


def fast_beam_search(
    model, encoder_out: Tensor, lengths: Tensor, config: SearchConfig
) -> List[List[Hypothesis]]:
    """Searches all utterances at once with ``k2.RnntDecodingStreams``.

    At most one symbol a frame; hypotheses that agree in their last H tokens (the *context*)
    are one state of the search and the better path into it survives. For a stateless
    predictor with H >= its context size this loses nothing. `Contexts` says what an LSTM
    predictor gets as its state: the search is exact as long as no two active hypotheses
    share their last H tokens.

    Args:
      model, encoder_out (B, T', D), lengths (B,), config: see `search`.

    Returns:
      Up to ``config.nbest`` hypotheses per utterance with different tokens: those of the best
      paths of the lattice, ranked like `modified_beam_search` ranks by what all their paths in the
      lattice add up to. Frames of tokens are those of the best path.

    Raises:
      UserError: k2 cannot be imported or has no CUDA for a model on a GPU; ``history`` is
        too long for k2.
    """
    k2 = _import_k2(encoder_out.device)
    device, batch, vocab = encoder_out.device, encoder_out.shape[0], model.vocab_size
    history = history_length(model, config)
    settings = k2.RnntDecodingConfig(
        vocab_size=vocab,
        decoder_history_len=history,
        beam=config.fast_beam,
        max_states=config.max_states,
        max_contexts=config.max_contexts,
    )
    graph = k2.trivial_graph(vocab - 1, device=device)
    streams = k2.RnntDecodingStreams(
        [k2.RnntDecodingStream(graph) for _ in range(batch)], settings
    )
    projected = model.joiner.project_encoder(encoder_out)
    lengths = lengths.to(device)
    contexts = Contexts(model, batch, history, device)
    # `format_output([n])` holds paths of n - 1 frames, so every stream gets one frame more:
    # a certain blank. Streams that are over get the same until the longest one ends.
    for t in range(int(lengths.max()) + 1):
        shape, symbols = streams.get_contexts()
        contexts.update(shape.row_splits(1).long(), symbols.long())
        log_probs = torch.full((len(symbols), vocab), _NEVER, device=device)
        log_probs[:, model.blank_id] = 0.0
        alive = (lengths[contexts.stream] > t).nonzero().squeeze(1)
        if alive.numel() > 0:
            frame = projected[contexts.stream[alive], t]
            logits = model.joiner(frame, contexts.predictor.output[alive])
            log_probs[alive] = logits.float().log_softmax(dim=-1)
        contexts.score(log_probs)
        streams.advance(log_probs)
    streams.terminate_and_flush_to_streams()
    lattice = streams.format_output((lengths + 1).tolist(), allow_partial=True)
    found = lattice_nbest(lattice, config.nbest)
    add_up_paths(lattice, found)
    return [rank(hypotheses, config) for hypotheses in found]


def history_length(model, config: SearchConfig) -> int:
    """H: ``config.history``, or what suits the predictor within k2's bounds.

    k2 packs context and graph state into 63 bits and past them returns garbage.

    Raises:
      UserError: ``config.history`` does not fit.
    """
    longest = 0
    while model.vocab_size ** (longest + 1) * _GRAPH_STATES < 2**63:
        longest += 1
    if config.history > longest:
        raise UserError(
            f"search.history={config.history} is too long for k2 with {model.vocab_size} "
            f"tokens; use {longest} or less, or 0"
        )
    if config.history > 0:
        return config.history
    wanted = getattr(model.predictor, "context_size", None) or _LONGEST_HISTORY
    return min(wanted, longest)


def _import_k2(device: torch.device):
    try:
        import k2
    except ImportError as error:
        reason = str(error).strip().split("\n")[0]
        raise UserError(
            f"fast_beam_search needs k2, which cannot be imported ({reason}); install it or "
            f"choose search.method=modified_beam_search"
        ) from error
    if device.type == "cuda" and not k2.with_cuda:
        raise UserError(
            "this k2 was built without CUDA; use fast_beam_search with --device cpu, or "
            "search.method=modified_beam_search"
        )
    return k2

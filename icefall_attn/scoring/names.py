"""Names of result files; they are made here and nowhere else."""

from dataclasses import dataclass
from pathlib import Path
from typing import Union

from icefall_attn.decoding.config import SearchConfig


@dataclass
class ResultPaths:
    """Files of one decoded set, all in ``exp/METHOD/``."""

    recogs: Path
    errs: Path
    summary: Path
    nbest: Path


def result_paths(
    exp_dir: Union[str, Path], set_name: str, model_name: str, search: SearchConfig
) -> ResultPaths:
    """``exp/METHOD/{recogs,errs,wer-summary}-SET-SUFFIX.txt`` and ``nbest-SET-SUFFIX.jsonl``.

    Args:
      exp_dir: the experiment directory.
      set_name: for example ``test-clean``.
      model_name: which checkpoints, for example ``epoch-30_avg-5``.
      search: method and options.
    """
    directory = Path(exp_dir) / search.method
    tail = f"{set_name}-{result_suffix(model_name, search)}"
    return ResultPaths(
        recogs=directory / f"recogs-{tail}.txt",
        errs=directory / f"errs-{tail}.txt",
        summary=directory / f"wer-summary-{tail}.txt",
        nbest=directory / f"nbest-{tail}.jsonl",
    )


def result_suffix(model_name: str, search: SearchConfig) -> str:
    """Checkpoints and search options: ``epoch-30_avg-5_beam-size-4``."""
    return f"{model_name}_{search_options(search)}"


def search_options(search: SearchConfig) -> str:
    """The options that change what a method finds, in icefall's words."""
    if search.method == "greedy_search":
        return f"max-sym-per-frame-{search.max_symbols_per_frame}"
    norm = "" if search.length_norm else "_no-length-norm"
    if search.method == "modified_beam_search":
        return f"beam-size-{search.beam_size}{norm}"
    options = (
        f"beam-{search.fast_beam}_max-contexts-{search.max_contexts}"
        f"_max-states-{search.max_states}"
    )
    if search.history:
        options += f"_history-{search.history}"
    if search.method == "fast_beam_search":
        options += norm
    if search.samples:
        options += f"_nbest-scale-{search.nbest_scale}_num-paths-{search.num_paths}"
    if search.of_words:
        options += f"_ngram-lm-scale-{search.ngram_lm_scale}"
    return options

"""From what a search found in a set to its files."""

from typing import Tuple, Union
from pathlib import Path

from icefall_attn.decoding.config import SearchConfig
from icefall_attn.decoding.sets import Decoded
from icefall_attn.scoring.errors import Score, score
from icefall_attn.scoring.names import ResultPaths, result_paths, search_options
from icefall_attn.scoring.reports import (
    Summary,
    write_errs,
    write_nbest,
    write_recogs,
    write_summary,
)


def write_results(
    decoded: Decoded,
    exp_dir: Union[str, Path],
    set_name: str,
    model_name: str,
    search: SearchConfig,
    tokenizer,
    unit: str = "word",
) -> Tuple[Score, Summary]:
    """Scores a decoded set and writes all its files; the summary last, so that who finds it finds all.

    Args:
      decoded: what was found.
      exp_dir: the experiment; the files come to `result_paths`.
      set_name, model_name: what was decoded, and with which checkpoints.
      search: which found it.
      tokenizer: has ``decode(ids) -> text`` and ``tokens``.
      unit: ``word`` or ``char``.
    """
    texts = {
        id: tokenizer.decode(nbest[0].tokens)
        for id, nbest in decoded.hypotheses.items()
    }
    result = score(decoded.references, texts, unit)
    paths: ResultPaths = result_paths(exp_dir, set_name, model_name, search)
    write_recogs(paths.recogs, result)
    write_errs(paths.errs, result)
    write_nbest(paths.nbest, decoded.references, decoded.hypotheses, tokenizer)
    summary = Summary(
        settings=search_options(search),
        rate=result.rate,
        insertions=result.insertions,
        deletions=result.deletions,
        substitutions=result.substitutions,
        ref_units=result.ref_units,
        missing=len(result.missing),
        rtf=decoded.rtf,
        unit=unit,
        set_name=set_name,
        model=model_name,
    )
    write_summary(paths.summary, [summary])
    return result, summary

"""Word and character error rates, and the files that report them."""

from icefall_attn.scoring.errors import Score, Utterance, score
from icefall_attn.scoring.names import ResultPaths, result_paths, result_suffix
from icefall_attn.scoring.reports import (
    Summary,
    read_summary,
    write_errs,
    write_nbest,
    write_recogs,
    write_summary,
)

__all__ = [
    "ResultPaths",
    "Score",
    "Summary",
    "Utterance",
    "read_summary",
    "result_paths",
    "result_suffix",
    "score",
    "write_errs",
    "write_nbest",
    "write_recogs",
    "write_summary",
]

"""Word n-gram models: estimated from text, kept in ARPA files."""

from icefall_attn.ngram.arpa import read_words, write_arpa
from icefall_attn.ngram.counts import NGrams, count_ngrams
from icefall_attn.ngram.kneser_ney import Estimate, kneser_ney
from icefall_attn.ngram.pruning import prune

__all__ = [
    "Estimate",
    "NGrams",
    "count_ngrams",
    "kneser_ney",
    "prune",
    "read_words",
    "write_arpa",
]

"""Word n-gram models: estimated from text, kept in ARPA files."""

from icefall_attn.ngram.arpa import read_words, write_arpa
from icefall_attn.ngram.counts import NGrams, count_ngrams
from icefall_attn.ngram.kneser_ney import Estimate, kneser_ney

__all__ = [
    "Estimate",
    "NGrams",
    "count_ngrams",
    "kneser_ney",
    "read_words",
    "write_arpa",
]

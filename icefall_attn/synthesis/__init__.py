"""Synthetic corpora: many voices of the speech synthesiser espeak-ng, in noise."""

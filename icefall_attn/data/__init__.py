"""Corpora: audio, features, tokens and the batches that a model sees."""

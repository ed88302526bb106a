"""Conformer transducers whose encoder attention is a choice."""

__version__ = "0.1.0"

"""Layers that know nothing of attention."""

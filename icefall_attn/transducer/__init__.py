"""Predictor, joiner and the transducer model."""

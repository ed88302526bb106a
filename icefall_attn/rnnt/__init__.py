"""Transducer losses; they know no model."""

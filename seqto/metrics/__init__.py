"""Metrics: how far a candidate is from the float model."""

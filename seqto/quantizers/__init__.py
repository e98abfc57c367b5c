"""Quantizers: how the model of a candidate is made."""

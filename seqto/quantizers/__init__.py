"""Quantizers: they make the models of candidates."""

"""Measuring: the one path from a candidate to its recorded measurement."""

"""Measuring: one path from a candidate to what is recorded of it, whoever asks for it."""

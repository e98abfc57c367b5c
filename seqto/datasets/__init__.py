"""Datasets: the samples that a study calibrates and evaluates on."""

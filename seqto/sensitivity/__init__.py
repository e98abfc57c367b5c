"""Sensitivity: how much quantization hurts each layer."""

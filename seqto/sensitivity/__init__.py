"""Sensitivity: how much harm quantizing each layer does."""

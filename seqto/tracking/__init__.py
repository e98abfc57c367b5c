"""Trackers: where studies and trials are recorded."""

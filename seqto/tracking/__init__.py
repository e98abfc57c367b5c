"""Trackers: where studies and trials are recorded."""

from seqto.tracking.telemetry import stop_telemetry

# Before any module of this package uses MLflow.
stop_telemetry()

"""Devices: what candidates run on."""

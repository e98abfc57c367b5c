"""Hydra finds plugins in packages under `hydra_plugins`."""

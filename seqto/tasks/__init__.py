"""Tasks: what a model's outputs mean."""

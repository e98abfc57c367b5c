"""Model sources: where the model of a study comes from."""

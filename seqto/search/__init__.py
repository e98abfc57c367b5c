"""Search: which candidates to try."""

"""A study: planned, explored, concluded."""

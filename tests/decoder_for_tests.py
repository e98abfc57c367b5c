"""A module as users write one: it decodes a detector's outputs."""

import numpy as np


def first_two(sample: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the first two rows of a sample: boxes, scores and classes."""
    rows = sample["dets"][:2]
    return rows[:, :4], rows[:, 4], rows[:, 5]

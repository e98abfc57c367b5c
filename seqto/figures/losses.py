"""Which losses are of interest, and which one is likely where nothing was counted."""

import math

WORKS = 0.1
"""A candidate that loses more than this share is not recommended while others lose less."""

RUINED = 1.5 * WORKS
"""Losses above this are all alike: nobody wants any of them."""

PER_ROOT = 0.2
"""The loss of a classifier, as a multiple of the square root of its divergence."""


def usual_loss(divergence: float, per_root: float = PER_ROOT) -> float:
    """Return the loss that goes with a divergence from the float model."""
    return min(per_root * math.sqrt(max(divergence, 0.0)), 1.0)

"""The uncertainty of a measured fraction."""

import math

Z95 = 1.959963984540054
"""The standard normal's quantile for 95 %."""


def wilson(fraction: float, count: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of a fraction of `count` samples (Wilson score).

    Unlike the usual normal approximation, it also holds for few samples and near 0 and 1.
    """
    spread = Z95**2 / count
    centre = (fraction + spread / 2) / (1 + spread)
    half = Z95 * math.sqrt(fraction * (1 - fraction) / count + spread / (4 * count)) / (1 + spread)
    # Rounding must not put the fraction outside its own interval.
    return min(fraction, max(0.0, centre - half)), max(fraction, min(1.0, centre + half))

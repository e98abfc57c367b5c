"""Numbers as people write them; an empty text where there is no number."""

import math
from typing import TypeGuard


def is_known(value: float | None) -> TypeGuard[float]:
    """Return whether there is a number, and a finite one."""
    return value is not None and math.isfinite(value)


def in_percent(fraction: float | None, digits: int) -> str:
    """Write a fraction as percent with so many digits after the point."""
    return f"{100 * fraction:.{digits}f} %" if is_known(fraction) else ""


def in_short_percent(fraction: float | None) -> str:
    """Write a fraction as percent with two digits that matter: 0.33 %, 1.1 %, 29 %."""
    if not is_known(fraction):
        return ""
    percent = 100 * fraction
    digits = 0 if abs(percent) >= 10 else 1 if abs(percent) >= 1 or percent == 0 else 2
    return f"{percent:.{digits}f} %"


def in_bytes(size: float | None) -> str:
    """Write a size in KB or MB."""
    if not is_known(size):
        return ""
    return f"{size / 1e6:.2f} MB" if size >= 1e6 else f"{size / 1e3:.1f} KB"


def in_ms(latency: float | None) -> str:
    """Write a time in milliseconds."""
    return f"{latency:.2f} ms" if is_known(latency) else ""


def in_digits(value: float | None) -> str:
    """Write a number with four digits that matter."""
    return f"{value:.4g}" if is_known(value) else ""


_MEASURED = {"_ms": 4, "_bytes": 15}
"""How many digits of a figure were measured, by the end of its name."""

_DIGITS = 6


def as_measured(name: str, value: float) -> float:
    """Return a figure without the digits that were not measured, or that only floats have."""
    if not math.isfinite(value):
        return value
    digits = next((count for end, count in _MEASURED.items() if name.endswith(end)), _DIGITS)
    return float(f"{value:.{digits}g}")

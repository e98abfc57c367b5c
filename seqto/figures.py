"""Numbers as people write them; nothing where there is no number."""

import math
from collections.abc import Callable, Mapping
from typing import TypeGuard

Metrics = Mapping[str, float]


def size_ratio(metrics: Metrics, baseline: Metrics) -> float | None:
    """Return the share of the float model's size, if it can be told."""
    if "size_ratio" in metrics:
        return metrics["size_ratio"]
    size, own = metrics.get("size_bytes"), baseline.get("size_bytes")
    return size / own if is_known(size) and is_known(own) and own > 0 else None


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


_METRICS: Mapping[str, tuple[str, Callable[[float | None], str]]] = {
    "accuracy_loss": ("loss", lambda loss: in_percent(loss, 2)),
    "size_bytes": ("size", in_bytes),
    "size_ratio": ("share of the size", in_short_percent),
    "latency_ms": ("latency", in_ms),
}


def metric_title(name: str) -> str:
    """Return what people call this metric."""
    return _METRICS[name][0] if name in _METRICS else name.replace("_", " ")


def figure(name: str, value: float) -> str:
    """Write a value of this metric with its unit."""
    return _METRICS.get(name, ("", in_digits))[1](value)

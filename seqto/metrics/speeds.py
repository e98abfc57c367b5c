"""Which latencies can be told apart."""

from collections.abc import Mapping

_LEAST_SHARE, _LEAST_MS = 0.05, 0.1
"""Smaller differences are not called any: the same model differs as much from run to run."""


def apart(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    """Return whether two latencies differ by more than their own noise, 5 % and 0.1 ms."""
    latency, own = one["latency_ms"], other["latency_ms"]
    slow, fast = (one, other) if latency > own else (other, one)
    low = slow.get("latency_p10_ms", slow["latency_ms"])
    high = fast.get("latency_p90_ms", fast["latency_ms"])
    # Another process on the same core can double a latency for seconds.
    return low > high and abs(latency - own) >= max(_LEAST_SHARE * own, _LEAST_MS)


def is_faster(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    """Return whether the first is surely faster; what was not measured is not."""
    known = "latency_ms" in one and "latency_ms" in other
    return known and one["latency_ms"] < other["latency_ms"] and apart(one, other)

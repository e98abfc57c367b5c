"""Which latencies can be told apart."""

import pytest

from seqto.metrics.speeds import apart, is_faster


def took(ms: float, noise: float = 0.01) -> dict[str, float]:
    return {
        "latency_ms": ms,
        "latency_p10_ms": ms * (1 - noise),
        "latency_p90_ms": ms * (1 + noise),
    }


@pytest.mark.parametrize(
    ("one", "faster"),
    [
        (took(8.0), True),
        # Within their own noise, within 5 %, and within a tenth of a millisecond.
        (took(8.0, noise=0.4), False),
        (took(9.6), False),
        (took(12.0), False),
        ({}, False),
    ],
)
def test_only_a_sure_difference_is_faster(one: dict[str, float], faster: bool) -> None:
    assert is_faster(one, took(10.0)) == faster


def test_tenths_of_a_millisecond_are_noise() -> None:
    assert not apart(took(0.1), took(0.19))
    assert apart(took(0.1), took(0.3)) and apart(took(0.3), took(0.1))

"""What one measured step of a layer's weights tells of the others."""

from collections.abc import Callable

import numpy as np
import pytest

from seqto.sensitivity.told import finer, to_measure, told_by_steps
from seqto.types import CODED_STEPS, Layer

LAYER = Layer("conv", "Conv", 4000, steps=dict(CODED_STEPS))
ASKED = [*CODED_STEPS]


def told(harm: Callable[[float], float], *measured: str) -> dict[str, float]:
    """Return the harms of all steps, the measured ones among them, from the finest step on."""
    known = {each: np.full(4, harm(CODED_STEPS[each])) for each in measured}
    found = {name: float(each.mean()) for name, each in known.items()}
    for name, (near, times) in told_by_steps(LAYER, known, ASKED).items():
        found[name] = float(known[near].mean()) * times
    return {name: found[name] for name in reversed(ASKED)}


def test_harm_grows_with_the_square_of_the_step() -> None:
    for name, harm in told(lambda step: 0.5 * step**2, "coded_0.35").items():
        assert harm == pytest.approx(0.5 * CODED_STEPS[name] ** 2)


@pytest.mark.parametrize("much", [12.0, 20.0, 40.0, 1000.0])
def test_a_coarser_step_never_does_less_harm(much: float) -> None:
    def harm(step: float) -> float:
        """A harm that comes to an end where the outputs are ruined."""
        return much * step**2 / (1 + much * step**2)

    found = told(harm, "coded_0.35", "coded_0.09")
    every = [*found.values()]
    assert every == sorted(every)
    # Between the two it is nowhere more than twice off.
    for name in ("coded_0.25", "coded_0.18", "coded_0.125"):
        assert found[name] == pytest.approx(harm(CODED_STEPS[name]), rel=0.5)


def test_chance_makes_no_coarser_step_better() -> None:
    known = {"coded_0.35": np.array([0.1, 0.3]), "coded_0.09": np.array([0.4])}
    times = told_by_steps(LAYER, known, ASKED)
    # Only the first sample is known of both, and there the finer one does more harm.
    assert times["coded_0.18"] == ("coded_0.09", 1.0)


def test_harmless_steps_tell_by_the_square() -> None:
    known = {"coded_0.35": np.zeros(2), "coded_0.09": np.zeros(2)}
    assert told_by_steps(LAYER, known, ASKED)["coded_0.18"] == ("coded_0.09", pytest.approx(4.0))


def test_what_was_not_measured_in_any_step_tells_nothing() -> None:
    assert told_by_steps(LAYER, {"int8": np.ones(2)}, ["int8", *ASKED]) == {}


def test_the_step_that_tells_most_is_measured_and_then_finer_ones() -> None:
    assert to_measure(LAYER, ["int8", *ASKED]) == ["int8", "coded_0.35"]
    assert finer(LAYER, "coded_0.35", ASKED) == ["coded_0.09"]
    assert finer(LAYER, ASKED[-1], ASKED) == []
    assert finer(LAYER, "int8", ["int8", *ASKED]) == []

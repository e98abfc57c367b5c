"""What one precision that only stores weights tells of the others.

Small errors do harm in proportion to their square. For EfficientNet-Lite0, that holds within 30 %
from steps of 0.18 to 0.7.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from seqto.protocols import Quantizer
from seqto.types import FLOAT32, INT8, Layer, expanded

_TELLING = 0.35
"""The step whose harm tells most about others: neither ruined nor next to nothing."""


_FINER = 4
"""How many times finer a step is tried where one ruins the outputs."""


def asked_of(quantizer: Quantizer, wanted: Sequence[str] | None) -> list[str]:
    """Return the precisions below float32 that are meant, int8 first; what is not offered, too."""
    names = wanted or [INT8]
    offered = expanded(names, quantizer.precisions)
    # What is not offered is refused by the quantizer.
    unknown = [each for each in names if not expanded([each], quantizer.precisions)]
    lower = [each for each in (*offered, *unknown) if each != FLOAT32] or [INT8]
    return sorted(lower, key=lambda precision: precision != INT8)


def to_measure(layer: Layer, asked: Sequence[str]) -> list[str]:
    """Return the precisions that have to be measured for this layer, in their order."""
    stored = [each for each in asked if each in layer.steps]
    told = nearest_telling(layer.steps, stored) if stored else ""
    return [each for each in asked if each not in layer.steps or each == told]


def nearest_telling(steps: Mapping[str, float], precisions: Sequence[str]) -> str:
    """Return which of these precisions tells most about the others."""
    return _nearest(steps, precisions, _TELLING)


def finer(layer: Layer, precision: str, asked: Sequence[str]) -> list[str]:
    """Return which precision to measure next where this one's step ruins the outputs, if any."""
    step = layer.steps.get(precision, 0.0)
    smaller = [each for each in asked if layer.steps.get(each, step) < step]
    return [_nearest(layer.steps, smaller, step / _FINER)] if smaller else []


def told_by_steps(
    layer: Layer, measured: Mapping[str, np.ndarray], asked: Sequence[str]
) -> dict[str, tuple[str, float]]:
    """Return what tells of each precision that was not measured, and how many times its harm.

    Harm grows with the square of the step. Between two that were measured it grows from the one to
    the other: a coarse step that ruins the outputs does not do its harm many times over.
    """
    steps = layer.steps
    known = sorted((each for each in measured if each in steps), key=lambda each: steps[each])
    told = {}
    for each in asked if known else ():
        if each in measured or each not in steps:
            continue
        below = [one for one in known if steps[one] <= steps[each]]
        above = known[len(below) :]
        near, power = (below or above)[-1 if below else 0], 2.0
        if below and above:
            power = _growth(steps, measured, near, above[0])
        told[each] = near, (steps[each] / steps[near]) ** power
    return told


def _growth(
    steps: Mapping[str, float], measured: Mapping[str, np.ndarray], fine: str, coarse: str
) -> float:
    """Return the power of the step with which harm grows from the one to the other."""
    count = min(len(measured[fine]), len(measured[coarse]))
    low, high = (float(measured[each][:count].mean()) for each in (fine, coarse))
    apart = math.log(steps[coarse] / steps[fine])
    if not (apart > 0 and 0 < low < math.inf and 0 < high < math.inf):
        return 2.0
    return min(max(math.log(high / low) / apart, 0.0), 2.0)


def _nearest(steps: Mapping[str, float], precisions: Sequence[str], step: float) -> str:
    """Return the precision whose step is nearest to this one, as a multiple of it."""
    return min(precisions, key=lambda each: abs(math.log(steps[each] / step)))

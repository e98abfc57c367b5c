"""How many predictions noise of a known size changes, from how close the float model's are.

Counting changes on a few samples tells little: one of 16 is 6 %. The size of the noise, however, is
known from as few, and what it does to others depends on their margins, which the float model
tells. On EfficientNet-Lite0 that is right within half a percent at losses of 1 to 10 %, and up to
twice too high below: good enough to choose what to evaluate, and never reported.
"""

import math

import numpy as np

from seqto.metrics.agreement import class_rows, usable
from seqto.metrics.harm import FLOOR, are_distributions
from seqto.types import Outputs

_RIVALS = 4
"""How many of the next classes may take the first place."""

_CLOSE, _CLOSE_SHARE = 8, 0.1
"""How many of the closest predictions tell how many are still closer, and which share of all."""


def expected_changes(reference: Outputs, before: Outputs, after: Outputs) -> float:
    """Return the share of `reference` whose top class changes under the noise of a few samples.

    `before` and `after` are their outputs without and with it.
    """
    rows = class_rows(reference)
    are_probable = are_distributions(rows)
    few, noisy = (_scores(class_rows(each), are_probable) for each in (before, after))
    # As in `judged`: where the float model's own outputs are of no use, nothing is lost.
    known = usable(few)
    good = known & usable(noisy)
    if not known.any():
        return 0.0
    kept = good.sum() / known.sum()
    changed = _changed(_scores(rows, are_probable), _spread(few[good], noisy[good]))
    return float(kept * changed + 1 - kept)


def _spread(few: np.ndarray, noisy: np.ndarray) -> float:
    """Return by how much the noise changes differences between the top class and its rivals."""
    first, rivals = _ranked(few)
    # A class that is ruled out stays so, and is no rival.
    noise = np.where(np.isfinite(few) & np.isfinite(noisy), noisy - few, np.nan)
    apart = np.take_along_axis(noise, first, 1) - np.take_along_axis(noise, rivals, 1)
    known = apart[np.isfinite(apart)]
    return float(np.sqrt(np.square(known).mean())) if known.size else 0.0


def _changed(scores: np.ndarray, spread: float) -> float:
    """Return how likely a top class changes if differences of scores vary so much."""
    scores = scores[usable(scores)]
    if not len(scores) or spread <= 0:
        return 0.0
    first, rivals = _ranked(scores)
    margins = np.take_along_axis(scores, first, 1) - np.take_along_axis(scores, rivals, 1)
    if margins.shape[1]:
        margins[:, 0] = _evened(margins[:, 0])
    stays = np.vectorize(math.erfc)(-margins / spread / math.sqrt(2)) / 2
    return float(1 - stays.prod(axis=1).mean())


def _evened(margins: np.ndarray) -> np.ndarray:
    """Return margins of which the closest ones are in even steps from 0 on.

    A single sample that is a tie by chance would else count for all small noises.
    """
    count = max(_CLOSE, round(_CLOSE_SHARE * len(margins)))
    if count >= len(margins):
        return margins
    order = np.argsort(margins, kind="stable")
    evened = margins.copy()
    evened[order[:count]] = (np.arange(count) + 0.5) / count * margins[order[count]]
    return evened


def _ranked(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the top class of each sample, and the classes next to it."""
    order = np.argsort(-scores, axis=1, kind="stable")[:, : 1 + _RIVALS]
    return order[:, :1], order[:, 1:]


def _scores(rows: np.ndarray, are_probable: bool) -> np.ndarray:
    values = np.asarray(rows, np.float64)
    return np.log(np.maximum(values, FLOOR)) if are_probable else values

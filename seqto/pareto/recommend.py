"""Which members of a front to take, by the names that they are recommended under."""

from collections.abc import Sequence

import numpy as np

from seqto.figures import LOSS, figure
from seqto.metrics.intervals import can_be_told_apart
from seqto.types import FLOAT32, Recommendation, Trial

BALANCED = "balanced"

WORKS = 0.1
"""A candidate that loses more than this share is not recommended while others lose less."""

_SAVES = 0.8
"""`accurate` has at most this share of the float model's size, if any member has."""


def recommend(members: Sequence[Trial], objectives: Sequence[str]) -> list[Recommendation]:
    """Return the members to take: `balanced` first, then the best of each objective.

    The float model is not among them unless it is all there is, and neither is what loses more
    than `WORKS` if others lose less.
    """
    quantized = [each for each in members if not _is_float(each)] or list(members)
    working = [each for each in quantized if _loss(each) <= WORKS] or quantized
    chosen = {BALANCED: _balanced(working, objectives)}
    for name in objectives:
        saving = [each for each in working if each.metrics.get("size_ratio", 0.0) <= _SAVES]
        among = saving or working if name == LOSS else working
        # size_bytes and size_ratio share an alias, which only one trial can hold.
        chosen.setdefault(figure(name).best_alias, _best(among, name, objectives))
    return [Recommendation(alias, trial) for alias, trial in chosen.items()]


def nearest_ideal(points: np.ndarray) -> np.ndarray:
    """Return the distance of each point from the best of all in every objective.

    Each objective spans 0 to 1 over the points.
    """
    span = np.ptp(points, axis=0)
    shares = (points - points.min(axis=0)) / np.where(span > 0, span, 1.0)
    # Rounded, so that mirrored points tie.
    return np.asarray(np.round(np.linalg.norm(shares, axis=1), 12))


def _balanced(trials: Sequence[Trial], objectives: Sequence[str]) -> Trial:
    """Return the cheapest trial whose loss cannot be told from the least on the same samples.

    Where the losses of samples are not known, or no loss is traded off, it is the one nearest the
    ideal; a tie goes to the smaller.
    """
    amounts = [name for name in objectives if name != LOSS]
    if LOSS in objectives and amounts and len({len(each.losses) for each in trials} | {0}) == 2:
        best = _best(trials, LOSS, objectives)
        alike = [
            each
            for each in trials
            if each is best or not can_be_told_apart(np.array(each.losses), np.array(best.losses))
        ]
        return _best(alike, amounts[0], objectives)
    points = np.array([[trial.metrics[name] for name in objectives] for trial in trials])
    distances = nearest_ideal(points).tolist()

    def order(at: int) -> tuple[float, float, float]:
        return distances[at], trials[at].metrics.get("size_bytes", 0.0), _harm(trials[at])

    return trials[min(range(len(trials)), key=order)]


def _best(trials: Sequence[Trial], objective: str, objectives: Sequence[str]) -> Trial:
    def order(trial: Trial) -> tuple[object, ...]:
        others = [trial.metrics[name] for name in objectives]
        return trial.metrics[objective], _harm(trial), others, trial.index

    return min(trials, key=order)


def _is_float(trial: Trial) -> bool:
    """Return whether all layers are in float32."""
    return all(precision == FLOAT32 for _, precision in trial.candidate.precisions)


def _loss(trial: Trial) -> float:
    return trial.metrics.get(LOSS, 0.0)


def _harm(trial: Trial) -> float:
    """Return the divergence, which tells trials apart whose losses are equal."""
    return trial.metrics.get("divergence", 0.0)

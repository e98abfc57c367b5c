"""Which members of a front to take, by the names that they are recommended under."""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import numpy as np

from seqto.figures import LOSS, WORKS, figure
from seqto.metrics.intervals import can_be_told_apart
from seqto.metrics.speeds import is_faster
from seqto.types import RECOMMEND, Recommendation, StudyRecord, Trial

Rule = Literal["tested", "paper"]
"""How members are chosen: by paired tests of their losses, or as the papers' tool does."""

TESTED: Final = "tested"
PAPER: Final = "paper"

BALANCED = "balanced"

_LATENCY = "latency_ms"

_AS_CHEAP = 1.02
"""What costs at most so many times the least is as cheap: for less than this, nobody wants to lose
more."""

_SAVES = 0.8
"""`accurate` has at most this share of the float model's size, if any member has."""


def recommend(
    members: Sequence[Trial], objectives: Sequence[str], baseline: Mapping[str, float] | None = None
) -> list[Recommendation]:
    """Return the members to take: `balanced` first, then the best of each objective.

    The float model is not among them unless it is all there is, and neither is what loses more
    than `WORKS` if others lose less. Of those that are as cheap it is the least lossy. None is
    recommended for its speed that is not surely faster than the float model, whose figures the
    `baseline` has.
    """
    quantized = [each for each in members if not each.candidate.is_float] or list(members)
    working = [each for each in quantized if _loss(each) <= WORKS] or quantized
    faster = _faster(working, baseline or {}) if _LATENCY in objectives else working
    if {*objectives} <= {LOSS, _LATENCY}:
        # Speed is all that they could be taken for.
        working = faster or _as_good_as_float(members)
    chosen = {BALANCED: _balanced(working, objectives)}
    for name in objectives:
        among = faster if name == _LATENCY else working
        if name == LOSS:
            saving = [each for each in working if each.metrics.get("size_ratio", 0.0) <= _SAVES]
            among = saving or working
        if not among:
            continue
        # size_bytes and size_ratio share an alias, which only one trial can hold.
        find = _best if name == LOSS else _cheapest
        chosen.setdefault(figure(name).best_alias, find(among, name, objectives))
    return [Recommendation(alias, trial) for alias, trial in chosen.items()]


def recommend_as_paper(
    members: Sequence[Trial], trials: Sequence[Trial], objectives: Sequence[str]
) -> list[Recommendation]:
    """Return all members, the nearest to the ideal first, as the papers' published tool ranks them.

    Each objective is normalized over all trials of the study, not over the front alone: so a
    trial far from the front changes which member is the nearest. The first is `balanced`, the
    next ones are `balanced-2`, `balanced-3` and so on.
    """
    distances = nearest_ideal(_points(members, objectives), _points(trials, objectives)).tolist()
    order = sorted(range(len(members)), key=lambda at: (distances[at], _bytes(members[at])))
    aliases = [BALANCED, *(f"{BALANCED}-{place}" for place in range(2, len(members) + 1))]
    return [Recommendation(alias, members[at]) for alias, at in zip(aliases, order, strict=True)]


def rule_of(record: StudyRecord) -> Rule:
    """Return the rule by which the study recommended."""
    return PAPER if record.tags.get(RECOMMEND) == PAPER else TESTED


def nearest_ideal(points: np.ndarray, among: np.ndarray | None = None) -> np.ndarray:
    """Return the distance of each point from the best of all in every objective.

    Each objective spans 0 to 1 over the points, or over those they are `among`.
    """
    among = points if among is None else among
    span = np.ptp(among, axis=0)
    shares = (points - among.min(axis=0)) / np.where(span > 0, span, 1.0)
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
        return _cheapest(alike, amounts[0], objectives)
    distances = nearest_ideal(_points(trials, objectives)).tolist()

    def order(at: int) -> tuple[float, float, float]:
        return distances[at], _bytes(trials[at]), _harm(trials[at])

    return trials[min(range(len(trials)), key=order)]


def _faster(trials: Sequence[Trial], baseline: Mapping[str, float]) -> list[Trial]:
    """Return the trials that are surely faster than the float model; all if that is not known."""
    if _LATENCY not in baseline:
        return list(trials)
    return [each for each in trials if is_faster(each.metrics, baseline)]


def _as_good_as_float(members: Sequence[Trial]) -> list[Trial]:
    """Return the float model, or else the member that loses least: no slower one beats it."""
    floating = [each for each in members if each.candidate.is_float]
    return floating or [min(members, key=lambda each: (_loss(each), _harm(each)))]


def _best(trials: Sequence[Trial], objective: str, objectives: Sequence[str]) -> Trial:
    def order(trial: Trial) -> tuple[object, ...]:
        others = [trial.metrics[name] for name in objectives]
        return trial.metrics[objective], _harm(trial), others, trial.index

    return min(trials, key=order)


def _cheapest(trials: Sequence[Trial], cost: str, objectives: Sequence[str]) -> Trial:
    """Return the trial that costs least, or loses less and costs next to nothing more."""
    least = min(each.metrics[cost] for each in trials)
    as_cheap = [each for each in trials if each.metrics[cost] <= _AS_CHEAP * least]
    if LOSS in objectives:
        return _best(as_cheap, LOSS, (cost, *objectives))
    return _best(trials, cost, objectives)


def _points(trials: Sequence[Trial], objectives: Sequence[str]) -> np.ndarray:
    return np.array([[trial.metrics[name] for name in objectives] for trial in trials])


def _bytes(trial: Trial) -> float:
    return trial.metrics.get("size_bytes", 0.0)


def _loss(trial: Trial) -> float:
    return trial.metrics.get(LOSS, 0.0)


def _harm(trial: Trial) -> float:
    """Return the divergence, which tells trials apart whose losses are equal."""
    return trial.metrics.get("divergence", 0.0)

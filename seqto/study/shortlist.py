"""Which of the screened candidates are evaluated in full."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from seqto.figures import PREDICTED
from seqto.pareto.front import comparable, non_dominated
from seqto.pareto.recommend import WORKS
from seqto.types import Candidate, Goal, Trial

SCREENED = ("divergence", "size_bytes")
"""What a screened search trades off if nobody asks for latency."""

Choose = Callable[[Sequence[Trial], int], list[Trial]]
"""Chooses this many of the screened trials for the full evaluation."""

_RUINS = 1.5 * WORKS
"""Models that lose more are not worth an evaluation."""

_FEWEST, _NONE = 1.5, 0.75
"""The fewest changed samples that are worth an evaluation, and those that are not told from none.
"""

_USUAL = 0.2
"""The loss of a classifier, as a multiple of the square root of its divergence."""


def shortlist(
    screened: Sequence[Trial], full: Sequence[Candidate], evaluations: int, choose: Choose
) -> list[Candidate]:
    """Return what is evaluated in full: fully quantized models, then others by size.

    `full` are the fully quantized models of all bases. They are always evaluated, even if they
    failed in the screening or are not on its front: the screening does not see that one base is
    faster than another. The float model is what all are compared with, and is not evaluated.
    """
    found = [each for each in comparable(screened) if not each.candidate.is_float]
    listed = list(full)
    # They are often on the front as well, which leaves room for one or two more.
    for count in range(max(evaluations - len(full), 0), evaluations + 1 if found else 0):
        ordered = sorted(choose(found, count), key=lambda trial: trial.metrics["size_bytes"])
        between = [each.candidate for each in ordered if each.candidate not in full]
        if len(between) + len(full) <= max(evaluations, len(full)):
            listed = [*full, *between]
    return list(dict.fromkeys(listed))


def screened_objectives(goal: Goal) -> tuple[str, ...]:
    """Return the screen's figures that stand for what a study trades off."""
    if not goal.latency:
        return SCREENED
    return ("divergence", *(("size_bytes",) if goal.size else ()), PREDICTED)


def spread(
    trials: Sequence[Trial], count: int, samples: int, objectives: Sequence[str] = SCREENED
) -> list[Trial]:
    """Return `count` of the front's trials, in even steps of the logarithm of harm.

    They reach from where models no longer work to where one or two of the samples that they are
    evaluated on change; of those that change none, the smallest is enough. Harm spans orders of
    magnitude: even steps of size would favour large models, whose losses are too small to tell
    apart, and even steps of harm would favour ruined ones.
    """
    front = non_dominated(trials, objectives)
    harms = np.log([max(trial.metrics["divergence"], 1e-9) for trial in front])
    losses = np.array([_RUINS, _FEWEST / samples, _NONE / samples])
    wanted = 2 * np.log(losses / _loss_per_root(trials))
    high, low, least = np.clip(wanted, harms.min(), harms.max())
    # The smallest of those that change nothing is worth it, too.
    least = max((each for each in harms if each <= least), default=least)
    chosen = _cheapest(front, objectives, high) if len(objectives) > 2 else set()
    for target in np.linspace(high, low, max(count - len(chosen), 0)):
        left = [at for at in range(len(front)) if at not in chosen and harms[at] >= least]
        if left:
            distances = np.abs(harms[left] - target)
            chosen.add(left[int(distances.argmin())])
    return [front[at] for at in sorted(chosen)]


def _cheapest(front: Sequence[Trial], objectives: Sequence[str], log_harm: float) -> set[int]:
    """Return the places of those that are cheapest in each cost, of those that do no more harm."""
    working = [
        at
        for at, trial in enumerate(front)
        if math.log(max(trial.metrics["divergence"], 1e-9)) <= log_harm + 1e-9
    ]
    return {min(working, key=lambda at: front[at].metrics[cost]) for cost in objectives[1:]}


def smoothed(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials with the disagreement that their divergence makes likely.

    Counted on a few samples it is mostly chance; divergence is not. What all trials together show
    is how the one goes with the other.
    """
    rate = _loss_per_root(trials)
    return [
        replace(each, metrics={**each.metrics, "disagreement": _likely(each, rate)})
        for each in trials
    ]


def _likely(trial: Trial, rate: float) -> float:
    return min(rate * math.sqrt(max(trial.metrics["divergence"], 0.0)), 1.0)


def _loss_per_root(trials: Sequence[Trial]) -> float:
    """Return the loss as a multiple of the square root of the harm, as far as the screen tells."""
    roots = sum(np.sqrt(max(each.metrics["divergence"], 0)) for each in trials)
    losses = sum(each.metrics.get("disagreement", 0.0) for each in trials)
    return float(losses / roots) if losses > 0 and roots > 0 else _USUAL

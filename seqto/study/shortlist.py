"""Which of the screened candidates are evaluated in full."""

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

import numpy as np

from seqto.figures import EXPECTED, PER_ROOT, PREDICTED, RUINED, usual_loss
from seqto.pareto.front import comparable, non_dominated
from seqto.types import Candidate, Goal, Trial

SCREENED = ("divergence", "size_bytes")
"""What a screened search trades off if nobody asks for latency."""

Choose = Callable[[Sequence[Trial], int], list[Trial]]
"""Chooses this many of the screened trials for the full evaluation."""

_FEWEST, _NONE = 1.5, 0.75
"""The fewest changed samples that are worth an evaluation, and how many are as good as none."""

_TINY = 1e-6
"""Losses below this are as good as none."""

_CHANCE = math.log(1.5)
"""The logarithm of how many times too high or too low a loss may be that few samples tell."""


def shortlist(
    screened: Sequence[Trial], full: Sequence[Candidate], evaluations: int, choose: Choose
) -> list[Candidate]:
    """Return what is evaluated in full: fully quantized models, then others by size.

    `full` are the fully quantized models of all bases. They are always evaluated, even if they
    failed in the screening or are not on its front: the screening does not see that one base is
    faster than another. The float model is what all are compared with, and is not evaluated.
    """
    found = quantized(screened)
    listed = list(full)
    # They are often on the front as well, which leaves room for one or two more.
    for count in range(max(evaluations - len(full), 0), evaluations + 1 if found else 0):
        ordered = sorted(choose(found, count), key=lambda trial: trial.metrics["size_bytes"])
        between = [each.candidate for each in ordered if each.candidate not in full]
        if len(between) + len(full) <= max(evaluations, len(full)):
            listed = [*full, *between]
    return list(dict.fromkeys(listed))


def quantized(screened: Iterable[Trial]) -> list[Trial]:
    """Return the screened candidates that could be measured, without the float model."""
    return [each for each in comparable(screened) if not each.candidate.is_float]


def screened_objectives(goal: Goal) -> tuple[str, ...]:
    """Return the screen's figures that stand for what a study trades off."""
    if not goal.latency:
        return SCREENED
    return ("divergence", *(("size_bytes",) if goal.size else ()), PREDICTED)


def spread(
    trials: Sequence[Trial], count: int, samples: int, objectives: Sequence[str] = SCREENED
) -> list[Trial]:
    """Return `count` of the front's trials, in even steps of the logarithms of loss and cost.

    They reach from where models no longer work to where one or two of the samples that they are
    evaluated on change; where losses count samples, one is enough beyond each of these ends. Losses
    span orders of magnitude: even steps of size would favour large models, whose losses are too
    small to tell apart, and even steps of loss would favour ruined ones. Costs are known, while
    losses are guessed from a few samples: where two guesses agree, costs still tell trials apart.
    """
    front = non_dominated(trials, objectives)
    likely = dict(zip(map(id, trials), _likely_losses(trials), strict=True))
    logs = np.log([max(likely[id(trial)], _TINY) for trial in front])
    if len(objectives) == len(SCREENED):
        costs = np.log([max(trial.metrics[objectives[1]], _TINY) for trial in front])
        foreseen = all(EXPECTED in trial.metrics for trial in front)
        chosen = _by_loss_and_cost(_calmed(logs, costs), costs, count, samples, foreseen)
    else:
        chosen = _by_loss(logs, front, count, samples, objectives)
    return [front[at] for at in sorted(chosen)]


def _by_loss_and_cost(
    logs: np.ndarray, costs: np.ndarray, count: int, samples: int, foreseen: bool
) -> set[int]:
    """Return the places of what is spread by losses and one cost.

    If losses are `foreseen`, only the best of those that do not work and the smallest of those that
    change nothing are worth a place beyond the ends.
    """
    high, low, least = _ends(logs, samples)
    worth = set(range(len(logs)))
    if foreseen:
        most = min((each for each in logs if each >= high), default=high)
        least = max((each for each in logs if each <= least), default=least)
        worth = set(np.flatnonzero((logs >= least) & (logs <= most)).tolist())
    first, last = (costs[np.abs(logs - end).argmin()] for end in (high, low))
    ways = (_way(logs, high, low) + _way(costs, first, last)) / 2
    return _evenly(ways, count, worth)


def _by_loss(
    logs: np.ndarray,
    front: Sequence[Trial],
    count: int,
    samples: int,
    objectives: Sequence[str],
) -> set[int]:
    """Return the places of what is spread by losses, besides those cheapest in each cost."""
    high, low, _ = _ends(logs, samples)
    cheapest = _cheapest(front, objectives, logs <= high + 1e-9)
    others = set(range(len(logs))) - cheapest
    return cheapest | _evenly(_way(logs, high, low), count - len(cheapest), others)


def _ends(logs: np.ndarray, samples: int) -> np.ndarray:
    """Return the logarithms of the losses from and to which is spread, and of next to none."""
    wanted = np.log([RUINED, _FEWEST / samples, _NONE / samples])
    return np.asarray(np.clip(wanted, logs.min(), logs.max()))


def _evenly(ways: np.ndarray, count: int, among: Collection[int]) -> set[int]:
    """Return the places nearest to so many even steps of the way, from 0 to 1."""
    chosen: set[int] = set()
    for target in np.linspace(0, 1, max(count, 0)):
        left = sorted({*among} - chosen)
        if left:
            chosen.add(left[int(np.abs(ways[left] - target).argmin())])
    return chosen


def _calmed(logs: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """Return the logarithms of losses with less of what is chance: losses fall as costs rise.

    Each is the median of itself and its two neighbours, and then moves half the way to the line
    between these, but no further than chance may have put it: a real step of the losses stays.
    """
    order = np.argsort(costs, kind="stable")
    at, calm = costs[order], logs[order]
    calm[1:-1] = np.median([calm[:-2], calm[1:-1], calm[2:]], axis=0)
    share = (at[1:-1] - at[:-2]) / np.maximum(at[2:] - at[:-2], _TINY)
    between = calm[:-2] + share * (calm[2:] - calm[:-2])
    calm[1:-1] += np.clip((between - calm[1:-1]) / 2, -_CHANCE, _CHANCE)
    found = np.empty_like(logs)
    found[order] = calm
    return found


def _way(values: np.ndarray, start: float, end: float) -> np.ndarray:
    """Return which share of the way from start to end each value has come, beyond them too."""
    return np.asarray((values - start) / (end - start)) if start != end else np.zeros(len(values))


def _cheapest(front: Sequence[Trial], objectives: Sequence[str], works: np.ndarray) -> set[int]:
    """Return the places of those that are cheapest in each cost, of those that work."""
    working = np.flatnonzero(works).tolist()
    return {min(working, key=lambda at: front[at].metrics[cost]) for cost in objectives[1:]}


def smoothed(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials with the disagreement that is likely on other samples.

    Counted on a few samples it is mostly chance.
    """
    return [
        replace(each, metrics={**each.metrics, "disagreement": likely})
        for each, likely in zip(trials, _likely_losses(trials), strict=True)
    ]


def _likely_losses(trials: Sequence[Trial]) -> list[float]:
    """Return the loss that each trial probably has.

    If the task cannot tell, it goes with the square root of the harm as it does for all together.
    """
    rate = _loss_per_root(trials)
    usual = [usual_loss(each.metrics["divergence"], rate) for each in trials]
    return [each.metrics.get(EXPECTED, loss) for each, loss in zip(trials, usual, strict=True)]


def _loss_per_root(trials: Sequence[Trial]) -> float:
    """Return the loss as a multiple of the square root of the harm, as far as the screen tells."""
    roots = sum(math.sqrt(max(each.metrics["divergence"], 0)) for each in trials)
    losses = sum(each.metrics.get("disagreement", 0.0) for each in trials)
    return float(losses / roots) if losses > 0 and roots > 0 else PER_ROOT

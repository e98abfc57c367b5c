"""Which of the screened candidates are evaluated in full."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from seqto.pareto.front import comparable, non_dominated
from seqto.types import NEGLIGIBLE, RUINED, Candidate, Trial

SCREENED = ("divergence", "size_bytes")
"""What a screened search trades off."""

Choose = Callable[[Sequence[Trial], int], list[Trial]]
"""Chooses this many of the screened trials for the full evaluation."""


def shortlist(
    screened: Sequence[Trial],
    full: Sequence[Candidate],
    unchanged: Candidate,
    evaluations: int,
    choose: Choose,
) -> list[Candidate]:
    """Return what is evaluated in full: fully quantized models, others by size, the float model.

    `full` are the fully quantized models of all bases, `unchanged` is the float model. They are
    always evaluated, even if they failed in the screening or are not on its front: the screening
    does not see that one base is faster than another.
    """
    known = {*full, *(replace(unchanged, scheme=each.scheme) for each in full)}
    found = comparable(screened)
    listed = [*full, unchanged]
    # They are often on the front as well, which leaves room for one or two more.
    least = max(evaluations - len(listed), 0)
    for count in range(least, evaluations + 1 if found else 0):
        ordered = sorted(choose(found, count), key=lambda trial: trial.metrics["size_bytes"])
        between = [each.candidate for each in ordered if each.candidate not in known]
        if len(between) + len(full) + 1 <= max(evaluations, len(full) + 1):
            listed = [*full, *between, unchanged]
    return list(dict.fromkeys(listed))


def spread(trials: Sequence[Trial], count: int) -> list[Trial]:
    """Return `count` of the front's trials, in even steps of the logarithm of harm.

    Harm spans orders of magnitude. Even steps of size would favour large models, whose losses are
    too small to tell apart, and even steps of harm would favour ruined ones.
    """
    front = non_dominated(trials, SCREENED)
    harms = np.log([max(trial.metrics["divergence"], 1e-9) for trial in front])
    high = min(harms.max(), np.log(RUINED))
    # If all harm is negligible, it still separates better from worse.
    low = max(harms.min(), min(np.log(NEGLIGIBLE), high - np.log(10)))
    chosen: set[int] = set()
    for target in np.linspace(max(low, high), low, count):
        left = [at for at in range(len(front)) if at not in chosen]
        if left:
            distances = np.abs(harms[left] - target)
            chosen.add(left[int(distances.argmin())])
    return [front[at] for at in sorted(chosen)]

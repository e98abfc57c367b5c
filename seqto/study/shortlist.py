"""Which of the screened candidates are evaluated in full."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from seqto.pareto.front import comparable, non_dominated
from seqto.types import NEGLIGIBLE, RUINED, Candidate, Trial

SCREENED = ("divergence", "size_bytes")
"""What a screened search trades off."""

Choose = Callable[[Sequence[Trial], int], list[Trial]]
"""Chooses so many of the screened trials for the full evaluation."""


def shortlist(
    screened: Sequence[Trial],
    full: Sequence[Candidate],
    unchanged: Candidate,
    evaluations: int,
    choose: Choose,
) -> list[Candidate]:
    """Return what is evaluated in full: the fully quantized models, then by size, then the float.

    `full` are the fully quantized models of all bases, `unchanged` is the float model. They are
    always evaluated, also where they are not on the front or failed on the screen, which does not
    see that a base is faster than another.
    """
    known = {*full, *(replace(unchanged, scheme=each.scheme) for each in full)}
    found = comparable(screened)
    listed = [*full, unchanged]
    # Often they are on the front as well: then there is room for one or two more.
    least = max(evaluations - len(listed), 0)
    for count in range(least, evaluations + 1 if found else 0):
        ordered = sorted(choose(found, count), key=lambda trial: trial.metrics["size_bytes"])
        between = [each.candidate for each in ordered if each.candidate not in known]
        if len(between) + len(full) + 1 <= max(evaluations, len(full) + 1):
            listed = [*full, *between, unchanged]
    return list(dict.fromkeys(listed))


def spread(trials: Sequence[Trial], count: int) -> list[Trial]:
    """Return so many of the front's trials, in even steps of the harm's logarithm.

    Harm spans orders of magnitude. Steps of size would be spent on large models, whose loss is too
    small to be told apart, and steps of the harm itself on ruined ones.
    """
    front = non_dominated(trials, SCREENED)
    harms = np.log([max(trial.metrics["divergence"], 1e-9) for trial in front])
    high = min(harms.max(), np.log(RUINED))
    # Where all harm is negligible, it still tells the better from the worse.
    low = max(harms.min(), min(np.log(NEGLIGIBLE), high - np.log(10)))
    chosen: set[int] = set()
    for target in np.linspace(max(low, high), low, count):
        left = [at for at in range(len(front)) if at not in chosen]
        if left:
            distances = np.abs(harms[left] - target)
            chosen.add(left[int(distances.argmin())])
    return [front[at] for at in sorted(chosen)]

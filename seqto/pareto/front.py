"""Which trials of a study are Pareto-optimal, which to take, and how good the front is.

pymoo is imported where it is used: it costs a quarter of a second that most commands never need.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from seqto.errors import StudyError, nearest
from seqto.figures import figure
from seqto.pareto.recommend import PAPER, TESTED, Rule, recommend, recommend_as_paper
from seqto.types import Front, Trial, TrialState


def find_front(
    trials: Sequence[Trial],
    objectives: Sequence[str],
    baseline: Mapping[str, float],
    top_k: int = 3,
    rule: Rule = TESTED,
) -> Front:
    """Return the trials that no other beats in every objective, all objectives minimised.

    Only complete trials that repeat no other take part, and of trials with equal objectives only
    the first. The members are sorted by the first objective, then by the second, and so on.

    At most `top_k` recommendations, see `recommend`: `balanced`, then each objective in turn names
    its best member with the alias that the table of figures has for it, such as `accurate` or
    `small`. One trial may be recommended under several names; of equally good ones it is the one
    that diverges least from the float model. With the rule `paper` they are those of
    `recommend_as_paper`.

    The hypervolume is in units of the float model, see `in_float_units` and `hypervolume`.

    Raises StudyError if no trial is complete or an objective is not measured in every one.
    """
    members = non_dominated(trials, objectives)
    in_units = [in_float_units(trial, objectives, baseline) for trial in members]
    if rule == PAPER:
        recommended = recommend_as_paper(members, comparable(trials), objectives)
    else:
        recommended = recommend(members, objectives, baseline)
    return Front(
        objectives=tuple(objectives),
        members=tuple(members),
        recommended=tuple(recommended[: max(top_k, 0)]),
        hypervolume=hypervolume(in_units),
    )


def non_dominated(trials: Sequence[Trial], objectives: Sequence[str]) -> list[Trial]:
    """Return the trials that no other beats in every objective, by the first objective."""
    distinct = comparable(trials)
    check_objectives(distinct, objectives)
    points = np.array([[trial.metrics[name] for name in objectives] for trial in distinct])
    return [distinct[row] for row in _front_rows(points)]


def comparable(trials: Iterable[Trial]) -> list[Trial]:
    """Return the trials that can be on a front, by index: complete, and no duplicates."""
    taking_part = (
        trial
        for trial in trials
        if trial.state == TrialState.COMPLETE and trial.duplicate_of is None
    )
    return sorted(taking_part, key=lambda trial: trial.index)


def in_float_units(
    trial: Trial, objectives: Sequence[str], baseline: Mapping[str, float]
) -> tuple[float, ...]:
    """Return a trial's objectives in units of the float model: 1 is what that one needs.

    Each is divided by the float model's own figure, but for those that are fractions already
    (losses, shares of the float model), or for which it has no figure above 0.
    """

    def unit(name: str) -> float:
        own = baseline.get(name, 0.0)
        is_amount = figure(name).of_float is None
        return own if is_amount and math.isfinite(own) and own > 0 else 1.0

    return tuple(trial.metrics[name] / unit(name) for name in objectives)


def hypervolume(points: Sequence[Sequence[float]], reference: float = 1.0) -> float:
    """Return the volume that these minimised points dominate, up to `reference` on every axis.

    In units of the float model the reference 1 is a model that costs as much and is always wrong.
    A point beyond it on any axis adds nothing; without a point inside, the volume is 0.
    """
    _quieten_pymoo()
    from pymoo.indicators.hv import HV

    inside = [tuple(point) for point in points if all(value < reference for value in point)]
    if not inside:
        return 0.0
    return float(HV(ref_point=np.full(len(inside[0]), reference))(np.array(inside)))


def _quieten_pymoo() -> None:
    """Keep pymoo before 0.6.2 from printing a hint about compiled modules into the output."""
    from pymoo.config import Config

    Config.warnings["not_compiled"] = False


def _front_rows(points: np.ndarray) -> list[int]:
    """Return the rows of the non-dominated points, equal ones once, by the first column."""
    _quieten_pymoo()
    from pymoo.util.nds.non_dominated_sorting import NonDominatedSorting

    # np.unique sorts by the first column, then the second, and names the first of equal rows.
    distinct, rows = np.unique(points, axis=0, return_index=True)
    front = NonDominatedSorting().do(distinct, only_non_dominated_front=True)
    return [int(row) for row in rows[np.sort(front)]]


def check_objectives(trials: Sequence[Trial], objectives: Sequence[str]) -> None:
    """Raise StudyError if there is no trial, or one in which an objective was not measured."""
    if not trials:
        raise StudyError(
            "The study has no front: none of its candidates is complete. "
            "Look at the failures of its runs, repair their cause and start it again."
        )
    if not objectives:
        raise StudyError(f"A front needs an objective. Measured are: {_measured(trials)}.")
    for name in objectives:
        lacking = [trial for trial in trials if not _has(trial, name)]
        if lacking:
            raise StudyError(_missing(name, lacking, trials))


def _has(trial: Trial, metric: str) -> bool:
    return math.isfinite(trial.metrics.get(metric, math.nan))


def _measured(trials: Sequence[Trial]) -> str:
    """Name the metrics that all these trials have."""
    names = sorted(name for name in trials[0].metrics if all(_has(each, name) for each in trials))
    return ", ".join(names) or "none"


def _missing(name: str, lacking: Sequence[Trial], trials: Sequence[Trial]) -> str:
    if len(lacking) == len(trials):
        hint = nearest(name, sorted(trials[0].metrics))
        where = f"No candidate has a number for the objective {name!r}{hint}."
    else:
        shown = ", ".join(f"#{trial.index}" for trial in lacking[:5])
        more = f" and {len(lacking) - 5} more" if len(lacking) > 5 else ""
        where = f"The objective {name!r} has no number in candidate {shown}{more}."
    return f"{where} Measured in every candidate are: {_measured(trials)}."

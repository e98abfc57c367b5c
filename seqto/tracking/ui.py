"""How studies look in MLflow's web pages: addresses, saved views, names and colours.

MLflow documents none of these interfaces. If a later version does not know one, a link leads to the
plain page, and nothing else is lost.
"""

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from seqto.figures import LOSS, by_column, costs, share, told, viewed
from seqto.types import Candidate, Front, Trial, trial_name

# MLflow 3 opens in its mode for language models, which hides the runs and the model registry.
_MODE = "workflowType=machine_learning"
_VIEW = "mlflow.sharedViewState."
_NOTE = "mlflow.note.content"
COLOUR = "mlflow.runColor"
RECOMMENDED, MEMBER, OTHER = "#d55e00", "#0072b2", "#b8bec4"
COLOURS = (RECOMMENDED, MEMBER, OTHER)

_ABOUT = (
    "Selective quantization by seqto: a run is a study, the runs below it are its candidates. "
    "Open a study to read its answer, or choose one of the views."
)


def run_page(experiment: str, run: str, tab: str = "") -> str:
    """Return the path of a run's page on a server."""
    return f"#/experiments/{experiment}/runs/{run}{tab}?{_MODE}"


def study_pages(experiment: str, study: str, front: Front, registered: str = "") -> dict[str, str]:
    """Return the study's pages by name, and those of the front's members by run id.

    `registered` is the name under which its models are registered, if they are.
    """
    view = f"#/experiments/{experiment}/runs?viewStateShareKey={_view_id(study)}&{_MODE}"
    own = f"#/experiments/{experiment}/runs?viewStateShareKey={_front_id(study)}&{_MODE}"
    return {
        "report": run_page(experiment, study, "/artifacts/report.html"),
        "candidates": view,
        "charts": f"{view}&compareRunsMode=CHART",
        "compare": f"{own}&compareRunsMode=CHART",
        **({"registered": f"#/models/{quote(registered, safe='')}?{_MODE}"} if registered else {}),
        **{trial.id: run_page(experiment, trial.id) for trial in front.members},
    }


def looks(trial: Trial, front: Front, held: Mapping[str, str]) -> dict[str, str]:
    """Return the tags for a run's name, colour and description, unless a person chose others."""
    name, colour = trial_name(trial.index, trial.candidate), OTHER
    if any(member.id == trial.id for member in front.members):
        aliases = front.aliases(trial)
        name = f"{trial.index:03d} {', '.join(aliases) or 'front'}"
        colour = RECOMMENDED if aliases else MEMBER
    wanted = {}
    if held.get(COLOUR, OTHER) in COLOURS:
        wanted[COLOUR] = colour
    if held.get("mlflow.runName", "").startswith(f"{trial.index:03d} "):
        wanted["mlflow.runName"] = name
    return wanted | _note(trial.index, trial.candidate, trial.metrics, held)


def first_looks(
    index: int, candidate: Candidate, metrics: Mapping[str, float], held: Mapping[str, str]
) -> dict[str, str]:
    """Return the same tags before the front is known, but for the name, which is there already."""
    colour = {} if COLOUR in held else {COLOUR: OTHER}
    return colour | _note(index, candidate, metrics, held)


def described(trial: Trial) -> str:
    """Describe a trial in a line, figures first: lists show only some twenty characters."""
    return _in_a_line(trial.index, trial.candidate, trial.metrics)


def _note(
    index: int, candidate: Candidate, metrics: Mapping[str, float], held: Mapping[str, str]
) -> dict[str, str]:
    """Return the description's tag; a person's own text stays, older figures do not."""
    written = held.get(_NOTE, "")
    if not metrics or (written and not written.endswith(_identified(index, candidate))):
        return {}
    return {_NOTE: _in_a_line(index, candidate, metrics)}


def _in_a_line(index: int, candidate: Candidate, metrics: Mapping[str, float]) -> str:
    measured = [each for each in by_column(told()) if each.name in metrics]
    figures = [each.summarised(metrics[each.name]) for each in measured]
    return ", ".join([*figures, _identified(index, candidate)])


def _identified(index: int, candidate: Candidate) -> str:
    return f"candidate {index}, {candidate.in_words()}"


def experiment_tags() -> dict[str, str]:
    """Return the tags of a new experiment: its description, and views to choose from."""
    columns = [f"tags.`seqto.{name}`" for name in ("model", "device", "quantization", "search")]
    figures = [f"metrics.`{name}`" for name in ("hypervolume", "front_size", "candidates")]
    studies = _table("tags.\"seqto.kind\" = 'study'", [*columns, *figures])
    # Sorted, because MLflow folds candidates into their studies when ordered by date.
    shown = [each.name for each in viewed() if not each.of_task]
    kinds = [f"tags.`seqto.{name}`" for name in ("model", "device", "quantization", "precisions")]
    fronts = _table("tags.\"seqto.pareto\" = 'true'", [*kinds, *_columns(shown)], LOSS)
    charts = _charts((LOSS, "size_ratio"), shown)
    return {
        "mlflow.experimentKind": "custom_model_development",
        _NOTE: _ABOUT,
        f"{_VIEW}seqto-studies": _named("seqto: studies", studies, 2),
        f"{_VIEW}seqto-fronts": _named("seqto: all fronts", {**fronts, **charts}, 1),
    }


def study_views(study: str, front: Front) -> dict[str, str]:
    """Return the experiment's tags with the views of a study: of all candidates, of its front."""
    objectives = tuple(each.name if (each := share(n)) else n for n in front.objectives)
    measured = {name for trial in front.members for name in trial.metrics}
    wanted = dict.fromkeys((*objectives, *(each.name for each in viewed())))
    shown = [name for name in wanted if name in measured]
    whole = f"tags.\"mlflow.parentRunId\" = '{study}'"
    members = f"{whole} and tags.\"seqto.pareto\" = 'true'"
    columns, charts = _columns(shown), _charts(objectives, shown)
    return {
        f"{_VIEW}{_view_id(study)}": _packed({**_table(whole, columns, objectives[0]), **charts}),
        f"{_VIEW}{_front_id(study)}": _packed(
            {**_table(members, columns, objectives[0]), **charts}
        ),
    }


def _view_id(study: str) -> str:
    return f"seqto-{study}"


def _front_id(study: str) -> str:
    return f"seqto-front-{study}"


def _columns(metrics: Sequence[str]) -> list[str]:
    figures = [f"metrics.`{name}`" for name in metrics]
    return ["params.`excluded_count`", *figures, "tags.`seqto.recommended`"]


def _table(condition: str, columns: Sequence[str], order: str = "") -> dict[str, Any]:
    sorting = {"orderByKey": f"metrics.`{order}`", "orderByAsc": True} if order else {}
    return {
        "searchFilter": condition,
        **sorting,
        "selectedColumns": list(columns),
        "columnOrder": ["attributes.`Run Name`", *columns],
        "columnWidths": {name: 150 if name.startswith("tags") else 120 for name in columns},
        "runsHiddenMode": "SHOW_ALL",
    }


def _charts(objectives: Sequence[str], shown: Sequence[str]) -> dict[str, Any]:
    """Return charts of the first objective over each other one and each cost, then of all."""
    first, *others = objectives
    wanted = dict.fromkeys((*others, *(each.name for each in costs())))
    planes = [name for name in wanted if name in shown]
    scatter = [
        {**_chart("SCATTER", f"{first}-{name}"), "xaxis": _axis(name), "yaxis": _axis(first)}
        for name in planes
        if name != first
    ]
    parallel = {
        **_chart("PARALLEL", "all"),
        "selectedParams": ["excluded_count"],
        "selectedMetrics": [*planes, first],
        "showAllRuns": False,
    }
    section = {
        **{"uuid": "seqto", "name": "Front", "display": True, "columns": 2, "cardHeight": 400},
        **{"isReordered": False, "deleted": False, "isGenerated": False},
    }
    return {
        "compareRunCharts": [*scatter, parallel],
        "compareRunSections": [section],
        # Otherwise MLflow puts its own section, with one bar chart per metric, first.
        "isAccordionReordered": True,
    }


def _chart(kind: str, name: str) -> dict[str, Any]:
    return {
        **{"type": kind, "uuid": f"seqto-{name}", "metricSectionId": "seqto"},
        **{"runsCountToCompare": 100, "deleted": False, "isGenerated": False},
    }


def _axis(metric: str) -> dict[str, str]:
    return {"key": metric, "type": "METRIC"}


def _named(name: str, state: Mapping[str, Any], order: int) -> str:
    """Return a view for the list of views; the highest `order` comes first."""
    return json.dumps(
        {"name": name, "createdAt": order, "updatedAt": order, "state": _packed(state)}
    )


def _packed(state: Mapping[str, Any]) -> str:
    """Return a view in MLflow's own storage format."""
    text = json.dumps(state, separators=(",", ":"))
    return "deflate;" + base64.b64encode(zlib.compress(text.encode(), 9)).decode()

"""Conversions between seqto's types and the tags, metrics and documents of MLflow runs."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlflow.entities import Dataset, DatasetInput, InputTag, Run

from seqto.types import (
    MACHINE_TAG,
    Candidate,
    DataSplit,
    Front,
    Layer,
    LayerScore,
    Measurement,
    Trial,
    TrialState,
    family,
)

EXCLUDED = "excluded_layers.json"
LOSSES = "losses.json"
INDEX = "seqto.index"
"""The tag with a candidate's number in its study."""
KINDS = ("seqto.model", "seqto.device", "seqto.quantization")
"""The tags of a study that its candidates and registered models carry, too."""
SENSITIVITY = "sensitivity.json"
STATUS = {
    TrialState.COMPLETE: "FINISHED",
    TrialState.FAILED: "FAILED",
    TrialState.KILLED: "KILLED",
    TrialState.STOPPED: "KILLED",
}
"""MLflow's names for how a run ended."""

_STATES = {
    "RUNNING": TrialState.RUNNING,
    "SCHEDULED": TrialState.RUNNING,
    "FINISHED": TrialState.COMPLETE,
    "FAILED": TrialState.FAILED,
    "KILLED": TrialState.KILLED,
}
_STOPPED = "seqto.stopped"
"""The tag of a run that was ended because it could not be on the front."""
_BASELINE = "float_"
_LONGEST_NAMES = 4000
"""How long the names of layers in a tag may be; MLflow cuts tags at 8000 characters."""
# MLflow's own tag for the purpose of a data set.
_CONTEXT = "mlflow.data.context"


def candidate_document(candidate: Candidate) -> dict[str, Any]:
    """Return the content of excluded_layers.json."""
    return {
        "key": candidate.key,
        "excluded": list(candidate.excluded),
        "precisions": dict(candidate.precisions),
        "scheme": candidate.scheme,
    }


def candidate_of(document: Mapping[str, Any]) -> Candidate:
    """Return the candidate that excluded_layers.json describes."""
    # Earlier versions of seqto wrote no scheme.
    return Candidate.of(document["precisions"], document.get("scheme", ""))


def losses_document(losses: Sequence[float]) -> dict[str, Any]:
    """Return the content of losses.json: the accuracy loss of each sample, in their order."""
    return {"accuracy_loss": list(losses)}


def losses_of(document: Mapping[str, Any]) -> tuple[float, ...]:
    """Return the losses that losses.json holds."""
    return tuple(document["accuracy_loss"])


def measurement_tags(measurement: Measurement, duplicate_of: int | None) -> dict[str, str]:
    """Return the tags of a measured candidate."""
    session = {f"seqto.{name}": value for name, value in measurement.session.items()}
    machine = {MACHINE_TAG: measurement.machine} if measurement.machine else {}
    tags = {"seqto.sha256": measurement.model_sha256, **machine, **session}
    if duplicate_of is not None:
        tags["seqto.duplicate_of"] = str(duplicate_of)
    return tags


def candidate_tags(candidate: Candidate) -> dict[str, str]:
    """Return what candidates are compared by: how many layers of each precision, and which."""
    groups: dict[str, list[str]] = {}
    for name, precision in candidate.precisions:
        groups.setdefault(family(precision), []).append(name)
    counts = ", ".join(f"{len(names)} {precision}" for precision, names in sorted(groups.items()))
    layers = {f"seqto.layers.{each}": _cut(names) for each, names in groups.items()}
    return {"seqto.precisions": counts, **layers}


def _cut(names: Sequence[str]) -> str:
    """Return the names in one line; of many, the first ones and how many more there are."""
    shown, length = 0, 0
    for name in names:
        length += len(name) + 2
        if length > _LONGEST_NAMES:
            break
        shown += 1
    more = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {more} more" if more else "")


def index_of(run: Run) -> int | None:
    """Return a candidate's number in its study; None for a run that is none, or was cut short."""
    # Earlier versions of seqto had it as a param.
    found = run.data.tags.get(INDEX, run.data.params.get("index"))
    return None if found is None else int(found)


def state_tags(state: TrialState) -> dict[str, str]:
    """Return the tags that tell how a run ended, where MLflow's own status does not."""
    return {_STOPPED: "true"} if state is TrialState.STOPPED else {}


def state_of(run: Run) -> TrialState:
    """Return the state of a run."""
    state = _STATES[run.info.status]
    return TrialState.STOPPED if state is TrialState.KILLED and _STOPPED in run.data.tags else state


def trial_of(run: Run, candidate: Candidate, losses: tuple[float, ...]) -> Trial:
    """Return the trial of this candidate's run."""
    tags = run.data.tags
    duplicate = tags.get("seqto.duplicate_of")
    return Trial(
        id=run.info.run_id,
        index=index_of(run) or 0,
        candidate=candidate,
        state=state_of(run),
        metrics=dict(run.data.metrics),
        model_sha256=tags.get("seqto.sha256", ""),
        session={
            name.removeprefix("seqto."): value
            for name, value in tags.items()
            if name.startswith("seqto.session.")
        },
        losses=losses,
        duplicate_of=None if duplicate is None else int(duplicate),
        failure=tags.get("seqto.failure", ""),
        machine=tags.get(MACHINE_TAG, ""),
    )


def front_tags(front: Front, run_id: str) -> dict[str, str]:
    """Return a candidate's tags about the front, whether it is a member or not."""
    ranks = {trial.id: rank for rank, trial in enumerate(front.members, 1)}
    aliases = [each.alias for each in front.recommended if each.trial.id == run_id]
    return {
        "seqto.pareto": "true" if run_id in ranks else "false",
        "seqto.rank": str(ranks.get(run_id, "")),
        "seqto.recommended": ",".join(aliases),
    }


def baseline_metrics(baseline: Mapping[str, float]) -> dict[str, float]:
    """Return the float model's figures as metrics of the study."""
    return {_BASELINE + name: value for name, value in baseline.items()}


def baseline_of(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the float model's figures among the metrics of a study."""
    return {
        name.removeprefix(_BASELINE): value
        for name, value in metrics.items()
        if name.startswith(_BASELINE)
    }


def scores_document(scores: Sequence[LayerScore]) -> dict[str, Any]:
    """Return the content of sensitivity.json."""
    rows = [
        {
            "rank": rank,
            "layer": each.layer.name,
            "op_type": each.layer.op_type,
            "weight_bytes": each.layer.weight_bytes,
            **_group(each.layer),
            **({} if each.layer.position is None else {"position": each.layer.position}),
            "score": each.score,
            "costs": dict(each.costs),
            "sizes": dict(each.sizes),
            **each.details,
        }
        for rank, each in enumerate(scores, 1)
    ]
    return {"layers": rows}


def scores_of(document: Mapping[str, Any]) -> tuple[LayerScore, ...]:
    """Return the scores that sensitivity.json holds."""
    return tuple(_score(row) for row in document["layers"])


def data_input(split: DataSplit) -> DatasetInput:
    """Return a data set as a run's input."""
    path = Path(split.source)
    here = {"uri": str(path.resolve())} if path.exists() else {"tags": {"name": split.source}}
    data = Dataset(
        name=split.name,
        digest=split.digest,
        source_type="local" if path.exists() else "code",
        source=json.dumps(here),
        profile=json.dumps({"num_rows": split.samples}),
    )
    return DatasetInput(data, [InputTag(_CONTEXT, split.context)])


def inputs_of(run: Run) -> list[DatasetInput]:
    """Return the data sets that a run has as inputs."""
    return list(run.inputs.dataset_inputs) if run.inputs else []


def is_evaluation(data: DatasetInput) -> bool:
    """Tell whether candidates are measured on this data set."""
    return any(tag.key == _CONTEXT and tag.value == "evaluation" for tag in data.tags)


def _group(layer: Layer) -> dict[str, str]:
    """Return what a search needs to know about a layer in a group."""
    return {"group": layer.group, "weight": layer.weight} if layer.group else {}


def _score(row: dict[str, Any]) -> LayerScore:
    name, op_type, weight_bytes = (row.pop(key) for key in ("layer", "op_type", "weight_bytes"))
    group, weight = row.pop("group", ""), row.pop("weight", "")
    position = row.pop("position", None)
    layer = Layer(name, op_type, weight_bytes, group=group, weight=weight, position=position)
    row.pop("rank")
    score, costs, sizes = row.pop("score"), row.pop("costs", {}), row.pop("sizes", {})
    return LayerScore(layer, score, row, costs, sizes)

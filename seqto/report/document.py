"""The report of a study as JSON: its checkpoint, and what pipelines read."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seqto.pareto.lost import lost
from seqto.types import TABLES, Front, LayerScore, StudyRecord, Trial
from seqto.workspace import written_whole

SCHEMA = 1


def report(record: StudyRecord, front: Front, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return all that is known of a study, ready for JSON.

    Numbers are numbers, in the units of the metrics (fractions, bytes, ms); NaN and infinity
    become null. The keys of schema 1:

    - `schema`: 1; a change that breaks readers raises it
    - `study`: `id` (of its run), `key`, `tags`
    - `objectives`: the names of the metrics that the front minimises, in order
    - `baseline`: the float model's metrics
    - `hypervolume`: of the front, in units of the float model
    - `recommended`: alias -> index of a candidate
    - `lost`: the indices of candidates that nobody measured because their device got lost
    - `candidates`: every trial by index, failed ones and duplicates included: `index`, `key`,
      `run_id`, `state` (RUNNING, COMPLETE, FAILED, KILLED, STOPPED), `pareto` (is it on the front),
      `aliases`, `excluded_layers`, `excluded_count`, `precisions`,
      `scheme` (or null), `metrics`,
      `model_sha256` (null if it has no model), `session` (options of ONNX Runtime that it
      ran with, and needs wherever it is loaded), `duplicate_of` (index of the first candidate
      with the same model, or null),
      `failure` (why it failed, or null), `machine` (the kind of machine that measured it; only
      those of the study's own kind, its tag `seqto.machine`, have a latency)
    - `sensitivity`: the layers, the most hurt first: `layer`, `op_type`, `weight_bytes`,
      `score`, `details`
    - `schemes`: full quantizations that were compared first (with quantization=auto, else
      empty), the least harmful first: `scheme`, `divergence`, `exact_divergence` (of the same file,
      computed exactly: the rest is an artefact of the device), `size_bytes`, `size_ratio`,
      `latency_ms`, `latency_p10_ms`, `base` (did the search go on from it)
    - `screening`: candidates measured on a few calibration samples: `key`, `scheme`, `evaluated`,
      `divergence`, `disagreement`, `expected_loss` (if known), `size_bytes`, `failure`
    - `environment`: short facts by name, such as versions and the device
    """
    trials = sorted(record.trials, key=lambda trial: trial.index)
    return {
        "schema": SCHEMA,
        "study": {"id": record.id, "key": record.key, "tags": dict(record.tags)},
        "objectives": list(front.objectives),
        "baseline": _numbers(record.baseline),
        "hypervolume": _number(front.hypervolume),
        "recommended": {each.alias: each.trial.index for each in front.recommended},
        "lost": sorted(each.index for each in lost(trials)),
        "candidates": [_candidate(trial, front) for trial in trials],
        "sensitivity": [_layer(score) for score in record.scores],
        **{name: [dict(row) for row in record.tables.get(name, ())] for name in TABLES},
        "environment": dict(environment),
    }


def write_report(
    path: Path, record: StudyRecord, front: Front, environment: Mapping[str, str]
) -> None:
    """Write the report of a study as a JSON file, whole or not at all."""
    text = json.dumps(
        report(record, front, environment), indent=2, ensure_ascii=False, allow_nan=False
    )
    with written_whole(path) as temporary:
        temporary.write_text(f"{text}\n", encoding="utf-8")


def _candidate(trial: Trial, front: Front) -> dict[str, Any]:
    excluded = trial.candidate.excluded
    return {
        "index": trial.index,
        "key": trial.candidate.key,
        "run_id": trial.id,
        "state": trial.state.value,
        "pareto": any(member.id == trial.id for member in front.members),
        "aliases": list(front.aliases(trial)),
        "excluded_layers": list(excluded),
        "excluded_count": len(excluded),
        "precisions": dict(trial.candidate.precisions),
        "scheme": trial.candidate.scheme or None,
        "metrics": _numbers(trial.metrics),
        "model_sha256": trial.model_sha256 or None,
        "session": dict(trial.session),
        "duplicate_of": trial.duplicate_of,
        "failure": trial.failure or None,
        "machine": trial.machine or None,
    }


def _layer(score: LayerScore) -> dict[str, Any]:
    return {
        "layer": score.layer.name,
        "op_type": score.layer.op_type,
        "weight_bytes": score.layer.weight_bytes,
        "score": _number(score.score),
        "details": _numbers(score.details),
    }


def _numbers(values: Mapping[str, float]) -> dict[str, float | None]:
    return {name: _number(value) for name, value in values.items()}


def _number(value: float) -> float | None:
    """Return a plain number, also for numpy's; JSON has no NaN and no infinity."""
    plain = value if type(value) is int else float(value)
    return plain if math.isfinite(plain) else None

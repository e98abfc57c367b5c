"""Latency that is searched for: predicted before candidates are chosen, then measured in turns."""

import logging
from collections.abc import Collection, Iterable, Mapping

import numpy as np

from seqto.errors import DeviceError, DeviceTransportError
from seqto.figures import CONVERSIONS, PREDICTED, as_measured
from seqto.measuring.evaluate import latency_figures
from seqto.measuring.latency_model import find_latency_model
from seqto.measuring.provenance import FLOAT_TIMES
from seqto.measuring.turns import time_in_turns
from seqto.pareto.front import comparable
from seqto.phases import say
from seqto.protocols import SearchesLatency
from seqto.study.conclude import rebuilt
from seqto.study.plan import Study
from seqto.types import Latency, LatencyModel, Trial

DOCUMENT = "latency.json"
"""The study's document of what predicts latency: a resumed study asks for the same candidates."""

TURNS = "latency_turns.json"
"""The study's document of which trials were timed in turns."""

ERROR = "latency_error"
"""The study's figure of by which share predictions are off, on average."""

Latencies = Mapping[str, LatencyModel]
"""What predicts the latency of candidates, by their scheme; empty where nothing can."""

_log = logging.getLogger(__name__)


def latencies_of(
    study: Study, run: str, bases: Iterable[str], left_out: Collection[str]
) -> Latencies:
    """Return what predicts the latency of candidates, if the study asks for latency.

    A resumed study keeps it. `left_out` are the layers that the device cannot run quantized.
    """
    if not study.settings.goal.is_timed:
        return {}
    search = study.parts.search
    if not isinstance(search, SearchesLatency):
        _log.warning(
            "search=%s does not look for fast candidates: their latency is only measured. "
            "search=budget does.",
            search.name,
        )
        return {}
    held, without = study.tracker.read_document(run, DOCUMENT), sorted(left_out)
    if held is None or held["left_out"] != without:
        times = study.tracker.read_document(run, FLOAT_TIMES) or {}
        found = {base: _model(study, base, left_out) for base in bases}
        models = {
            base: each.anchored(times.get("latency_ms")).as_document()
            for base, each in found.items()
            if each is not None
        }
        held = {"left_out": without, "models": models if len(models) == len(found) else {}}
        study.tracker.log_document(run, DOCUMENT, held)
    read = {base: LatencyModel.from_document(each) for base, each in held["models"].items()}
    if not read:
        _log.warning(
            "On %s latency cannot be predicted: candidates are chosen by loss and size, and their "
            "latency is only measured.",
            study.parts.device.name,
        )
        return {}
    study.tracker.log_figures(run, {ERROR: float(np.mean([each.error for each in read.values()]))})
    return read


def _model(study: Study, base: str, left_out: Collection[str]) -> LatencyModel | None:
    try:
        return find_latency_model(study.parts, study.subject, base, left_out)
    except DeviceTransportError:
        raise
    except DeviceError as error:
        _log.warning("%s cannot be profiled: %s", study.parts.device.name, error)
        return None


def time_candidates(study: Study, run: str) -> None:
    """Time what was evaluated in turns with the float model, and record how good predictions were.

    Each was timed beside the float model when it was evaluated, while other processes evaluated
    others. Where latency is traded off, all have their turns together, and nothing else runs.
    """
    trials = comparable(study.tracker.trials(run))
    held = study.tracker.read_document(run, TURNS)
    ids = sorted(each.id for each in trials)
    if not trials or (held is not None and held["trials"] == ids):
        return
    say("timing candidates in turns", 0, len(trials))
    models = [rebuilt(study, each) for each in trials]
    subject = study.subject
    try:
        latencies, own = time_in_turns(models, subject.model, subject.example, study.parts.device)
    except DeviceError as error:
        _log.warning("Latencies are those of single measurements, not in turns: %s", error)
        return
    predicted = _predicted(study, run, trials, own.median_ms)
    figures = {
        trial.id: {**_as_measured(latency), **predicted.get(trial.id, {})}
        for trial, latency in zip(trials, latencies, strict=True)
    }
    study.tracker.log_times(run, _as_measured(own), figures)
    off = [
        abs(each[PREDICTED] - each["latency_ms"]) / each["latency_ms"]
        for each in figures.values()
        if PREDICTED in each
    ]
    if off:
        study.tracker.log_figures(run, {ERROR: float(np.mean(off))})
    study.tracker.log_document(run, TURNS, {"trials": ids})


def _as_measured(latency: Latency) -> dict[str, float]:
    return {name: as_measured(name, ms) for name, ms in latency_figures(latency).items()}


def _predicted(
    study: Study, run: str, trials: Iterable[Trial], float_ms: float
) -> dict[str, dict[str, float]]:
    """Return what was predicted of each trial, and how much of it are conversions.

    It is what they were to take of the float model's time, which is now `float_ms`.
    """
    held = study.tracker.read_document(run, DOCUMENT) or {"models": {}}
    read = {
        base: LatencyModel.from_document(each).anchored(float_ms)
        for base, each in held["models"].items()
    }
    found = {}
    for trial in trials:
        if model := read.get(trial.candidate.scheme):
            spent = model.spent(dict(trial.candidate.precisions))
            found[trial.id] = {PREDICTED: spent.total_ms, CONVERSIONS: spent.conversions_ms}
    return found

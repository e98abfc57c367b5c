"""The final step of a study, from what the tracker holds."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from seqto.errors import StudyError
from seqto.graph.files import save_model
from seqto.pareto.limits import front_within
from seqto.phases import counted, say
from seqto.study.plan import Study
from seqto.types import RECOMMEND, REGISTERED, Front, Model, StudyRecord, Trial

Publish = Callable[[StudyRecord, Front], Sequence[Path]]
"""Writes the files that go with a front, and returns their paths."""

_SMALL = 2**26
"""Models of fewer bytes are kept rather than built twice."""


def conclude(study: Study, run: str, publish: Publish) -> tuple[StudyRecord, Front]:
    """Find the front of the measured trials, store its models, register the recommended."""
    tracker, settings = study.tracker, study.settings
    record = tracker.read_study(run)
    tags: dict[str, str] = {RECOMMEND: settings.recommend}
    if study.registers(record):
        # The report says how to load the models, and is written before they are registered.
        tags[REGISTERED] = study.name
    tracker.tag_study(run, tags)
    record = replace(record, tags={**record.tags, **tags})
    front = front_of(study, record)
    tracker.log_front(run, front, publish(record, front))
    for trial in counted("storing models", front.members):
        _log_model(study, trial)
    if study.registers(record):
        say("registering models", 0, len(front.recommended))
        tracker.register(run, study.name, front.recommended)
    _log_gate(study, run, front)
    return record, front


def front_of(study: Study, record: StudyRecord) -> Front:
    """Return the front of what is measured by now, with the answer to the constraint."""
    settings = study.settings
    rules = (settings.constraint, settings.top_k, settings.recommend)
    return front_within(record.trials, settings.objectives, record.baseline, *rules)


def rebuilt(study: Study, trial: Trial) -> Model:
    """Return the trial's model, exactly as it was measured."""
    known: Model | None = study.models.get(trial.model_sha256)
    if known is not None:
        return known
    subject = study.subject
    model = study.parts.quantizer.quantize(subject.model, subject.ranges, trial.candidate)
    if model.digest != trial.model_sha256:
        raise StudyError(
            f"candidate {trial.index} cannot be rebuilt as it was measured: seqto, onnx "
            "or onnxruntime changed since. Start afresh with study.resume=false."
        )
    return model


def save_recommended(study: Study, front: Front, folder: Path) -> list[Path]:
    """Write the recommended models into the folder, named by their aliases; return their paths."""
    paths = []
    trials = {each.trial.id: each.trial for each in front.recommended}
    for trial in counted("saving models", list(trials.values())):
        model = rebuilt(study, trial)
        if model.size < _SMALL:
            # They are stored in the tracker next.
            study.models[model.digest] = model
        for alias in front.aliases(trial):
            path = folder / f"{alias}.onnx"
            save_model(model, path)
            paths.append(path)
    return paths


def _log_model(study: Study, trial: Trial) -> None:
    model = rebuilt(study, trial)
    facts = {**study.parts.device.describe(), **model.session}
    study.tracker.log_model(trial, model, study.subject.example, facts)


def _log_gate(study: Study, run: str, front: Front) -> None:
    """If there is a gate, record it and whether the front meets it."""
    gate = study.settings.gate
    if gate.limits():
        passed = "passed" if gate.best(front.members) else "failed"
        study.tracker.tag_study(run, {"seqto.gate": passed, "seqto.gate_limits": str(gate)})

"""A study: ask, evaluate, tell, record; then the final step, from what the tracker holds."""

import contextlib
import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import filelock
import pydantic
from pydantic import ConfigDict, Field

from seqto.attempts import Attempt
from seqto.constraint import Constraint, Gate, with_answer
from seqto.errors import ConfigError, StudyError, nearest, reason
from seqto.evaluate import Subject, measure, needed_session, undone
from seqto.exclusions import (
    ConfinedScreen,
    ConfinedSearch,
    DeviceExclusions,
    fully_quantized,
)
from seqto.interrupts import put_off
from seqto.pareto import find_front
from seqto.protocols import Search, SeveralSchemes, Tracker
from seqto.schemes import as_table, compare
from seqto.screening import Screen, ScreenedSearch, spread
from seqto.search.bases import SearchFromBases
from seqto.sensitivity.stability import stability
from seqto.subject import Parts, float_latency, rank_layers
from seqto.tracking.ui import trial_name
from seqto.types import (
    COMMAND,
    CONSTRAINT,
    INT8,
    OVERRIDES,
    REGISTERED,
    SCHEMES,
    SCREENING,
    Candidate,
    DataSplit,
    Front,
    LayerScore,
    Measurement,
    StudyPlan,
    StudyRecord,
    Trial,
    TrialState,
    content_key,
)
from seqto.workspace import Workspace

LOW_STABILITY = 0.7
"""Below this rank correlation of the samples' halves a ranking is no better than a guess."""

_log = logging.getLogger(__name__)

_INCIDENTAL = ("path", "workers")
"""Settings that do not make another study: what is there counts, not where, nor who looks at it."""

OBJECTIVES = ("accuracy_loss", "accuracy_drop", "size_bytes", "size_ratio", "latency_ms")


@dataclass(frozen=True)
class Assignment:
    """A candidate to be measured, and its number in the study."""

    index: int
    candidate: Candidate


RANGES = "ranges.json"
"""The study's document of calibrated ranges: its jobs on other machines need not calibrate."""

Launch = Callable[[str, Sequence[Assignment]], Iterable[str]]
"""Has a study's assignments measured somewhere, and gives the ids of their trials."""

Watch = Callable[[Trial, int, int], None]
"""Is told of each trial that ended, how many are done and how many there are at the most."""

Publish = Callable[[StudyRecord, Front], Sequence[Path]]
"""Writes the files that go with a front, and returns their paths."""


@pydantic.dataclasses.dataclass(kw_only=True, frozen=True, config=ConfigDict(extra="forbid"))
class StudySettings:
    """How a study is run and concluded."""

    objectives: list[str] = field(default_factory=lambda: ["accuracy_loss", "size_bytes"])
    top_k: Annotated[int, Field(ge=1)] = 3
    resume: bool = True
    batch: Annotated[int, Field(ge=1)] = 1
    max_failed: Annotated[float, Field(ge=0, le=1)] = 0.5
    constraint: Constraint = field(default_factory=Constraint)
    gate: Gate = field(default_factory=Gate)
    register_models: bool = True

    def __post_init__(self) -> None:
        """Refuse objectives that nothing measures."""
        for name in self.objectives:
            if name not in OBJECTIVES:
                raise ConfigError(
                    f"objectives has {name!r}{nearest(name, OBJECTIVES)}, which is not measured. "
                    f"Choose from {', '.join(OBJECTIVES)}."
                )
        if len(set(self.objectives)) < 2:
            raise ConfigError(
                "objectives needs at least two different ones to trade off, "
                "for example objectives=[accuracy_loss,size_bytes]."
            )


@dataclass(frozen=True)
class Outcome:
    """How a study ended: what the tracker holds, the front, and how many trials were run now."""

    record: StudyRecord
    front: Front
    measured: int


@dataclass(frozen=True)
class Study:
    """One model x device x quantization x dataset x search."""

    parts: Parts
    subject: Subject
    settings: StudySettings
    tracker: Tracker
    workspace: Workspace
    command: str = ""
    """The command line that asks for it, if one does."""

    @property
    def name(self) -> str:
        """The name under which its models are registered."""
        return self.parts.registered_name

    @property
    def key(self) -> str:
        """The study's content: the same key is the same study."""
        facts = self.parts.device.describe()
        # Another runtime, or other kernels, measure something else.
        runtime = [facts["runtime"], facts.get("kernels", "")]
        contents = [self.subject.original_sha256, self.subject.fingerprint, *runtime]
        return content_key([*contents, _what_counts(self.parts.settings)])

    def run(
        self,
        launch: Launch,
        watch: Watch,
        publish: Publish,
        config: str,
        overrides: Sequence[str] | None = None,
    ) -> Outcome:
        """Open or resume the study, measure what is missing, conclude.

        `overrides` are the words of the command line that make this config, if there is one.
        """
        plan, resume = self._plan(config, overrides), self.settings.resume
        with _alone(self.workspace, plan.key), _opened(self.tracker, plan, resume) as study:
            measured = self._explore(study, launch, watch)
            record, front = self._conclude(study, publish)
            self.tracker.close_study(study, TrialState.COMPLETE)
        return Outcome(record, front, measured)

    def _plan(self, config: str, overrides: Sequence[str] | None) -> StudyPlan:
        parts = self.parts
        tags = {
            "seqto.model": parts.source.name,
            "seqto.device": parts.device.name,
            "seqto.quantization": parts.quantizer.name,
            "seqto.search": parts.search.name,
            "seqto.dataset": parts.dataset.name,
            "seqto.data": self.subject.fingerprint,
            "seqto.metric": parts.metric.name,
            **{f"seqto.device.{name}": fact for name, fact in parts.device.describe().items()},
            **({COMMAND: self.command} if self.command else {}),
            **self._report_tags(overrides),
        }
        names = (parts.source.name, parts.device.name, parts.quantizer.name, parts.search.name)
        return StudyPlan(
            self.key, " ".join(names), tags, _flat(parts.settings), config, self._data()
        )

    def _data(self) -> tuple[DataSplit, ...]:
        settings = self.parts.settings.get("dataset", {})
        source = str(settings.get("path") or settings.get("_target_", ""))
        splits = {"calibration": self.subject.calibration, "evaluation": self.subject.samples}
        return tuple(
            DataSplit(
                name=self.parts.dataset.name,
                context=context,
                digest=content_key([self.subject.fingerprint, context]),
                source=source,
                samples=len(samples),
            )
            for context, samples in splits.items()
        )

    def _report_tags(self, overrides: Sequence[str] | None) -> dict[str, str]:
        """Return what a report needs to know of the study besides what it found."""
        limits = self.settings.constraint.limits()
        found = {
            OVERRIDES: None if overrides is None else json.dumps(list(overrides)),
            CONSTRAINT: json.dumps(limits) if limits else None,
        }
        return {name: value for name, value in found.items() if value is not None}

    def _explore(self, study: str, launch: Launch, watch: Watch) -> int:
        """Measure what the search asks for; search anew when the device rules layers out."""
        if self.tracker.read_document(study, RANGES) is None:
            self.tracker.log_document(study, RANGES, self.subject.ranges)
        bases = self._bases(study)
        record = self._analysed(study, bases)
        limits = DeviceExclusions(self.parts, self.subject, self.tracker, study, record.scores)
        measuring = _Measuring(study, self.tracker, launch, record.trials)
        while self._search_once(record, bases, limits, measuring, watch):
            pass
        return measuring.measured

    def _search_once(
        self,
        record: StudyRecord,
        bases: Sequence[str],
        limits: DeviceExclusions,
        measuring: "_Measuring",
        watch: Watch,
    ) -> bool:
        """Run the search on the layers that are left; tell whether there are now fewer."""
        index = limits.next_index
        search = self._search(bases, limits.layers)
        if self.parts.search.screens:
            # A device that cannot run it would fail all that is screened, one by one.
            full = fully_quantized(record.scores, INT8, limits.layers)
            full = replace(full, scheme=bases[0] if bases else "")
            (trial,) = measuring.trials([Assignment(index, full)])
            if limits.learn(trial, index + 1):
                return True
        search.start(record.scores)
        if isinstance(search, ScreenedSearch | ConfinedSearch) and (table := search.table()):
            self.tracker.log_table(record.id, SCREENING, table)
        failed = 0
        while candidates := search.ask(self.settings.batch):
            batch = [Assignment(index + place, each) for place, each in enumerate(candidates)]
            index += len(batch)
            learned = False
            for each, trial in zip(batch, measuring.trials(batch), strict=True):
                explained = limits.learn(trial, index)
                learned |= explained
                failed += trial.state is TrialState.FAILED and not explained
                search.tell(trial)
                total = index + search.remaining()
                watch(trial, each.index + 1, total)
                _check_failures(failed, total, self.settings, trial)
            if learned:
                return True
        return False

    def _bases(self, study: str) -> list[str]:
        """Return the schemes that candidates are made from; none where the quantizer has one way.

        A resumed study keeps those that it had.
        """
        quantizer = self.parts.quantizer
        if not isinstance(quantizer, SeveralSchemes):
            return []
        table = self.tracker.read_study(study).tables.get(SCHEMES)
        if table is None:
            table = as_table(compare(quantizer, self.subject, self.parts.device))
            self.tracker.log_table(study, SCHEMES, table)
        return [str(row["scheme"]) for row in table if row["base"]]

    def _ranking(self, base: str) -> tuple[LayerScore, ...]:
        """Return the layers, those first that quantization from this base hurts most."""
        parts, quantizer = self.parts, self.parts.quantizer
        if base and isinstance(quantizer, SeveralSchemes):
            settings = {**parts.settings["quantization"], "scheme": base}
            parts = replace(
                parts,
                quantizer=quantizer.schemes[base],
                settings={**parts.settings, "quantization": settings},
            )
        return rank_layers(parts, self.subject, self.workspace)

    def _search(self, bases: Sequence[str], excluded: Collection[str]) -> Search:
        """Return the search from these bases over the layers that are left.

        It is behind a screen if it wants one.
        """
        search = self.parts.search
        if bases:
            search = SearchFromBases(search, {base: self._left(base, excluded) for base in bases})
        if search.screens:
            folder = self.workspace.screens(self.key)
            # A device whose candidates are compiled has one that screens them faster.
            device = getattr(self.parts.device, "stand_in", self.parts.device)
            parts = replace(self.parts, device=device)
            screen = Screen(parts, self.subject, search.screens, folder)
            search = ScreenedSearch(
                search,
                ConfinedScreen(screen, excluded) if excluded else screen,
                self._shorten,
                bases or [""],
            )
        return ConfinedSearch(search, excluded) if excluded else search

    def _left(self, base: str, excluded: Collection[str]) -> list[LayerScore]:
        """Return the ranking from this base of the layers that are not excluded."""
        return [each for each in self._ranking(base) if each.layer.name not in excluded]

    def _shorten(self, screened: Sequence[Trial], count: int) -> list[Trial]:
        """Choose what is evaluated in full: along the front, or where the constraint is."""
        constraint = self.settings.constraint
        if constraint.limits():
            return constraint.shorten(screened, count, self.subject.baseline["size_bytes"])
        return spread(screened, count)

    def _analysed(self, study: str, bases: Sequence[str]) -> StudyRecord:
        """Return the study with its layers ranked; a resumed one keeps the ranking it had.

        Of several bases it is the ranking from the first, which does the least harm.
        """
        if not self.tracker.read_study(study).scores:
            baseline = {**self.subject.baseline, **float_latency(self.parts, self.subject)}
            scores = self._ranking(bases[0] if bases else "")
            self.tracker.log_analysis(study, baseline, scores)
            self._log_stability(study, stability(scores))
        return self.tracker.read_study(study)

    def _log_stability(self, study: str, correlation: float | None) -> None:
        """Record whether the samples' halves agree on the ranking; warn where they do not."""
        if correlation is None:
            return
        self.tracker.log_figures(study, {"sensitivity_stability": correlation})
        if correlation < LOW_STABILITY:
            _log.warning(
                "The layers' ranking is unsure: two halves of the samples correlate by %.2f only. "
                "Raise sensitivity.samples.",
                correlation,
            )

    def _conclude(self, study: str, publish: Publish) -> tuple[StudyRecord, Front]:
        record = self.tracker.read_study(study)
        if self.registers(record):
            # For the report, which is made before: it says how to load them.
            self.tracker.tag_study(study, {REGISTERED: self.name})
            record = replace(record, tags={**record.tags, REGISTERED: self.name})
        front = find_front(
            record.trials, self.settings.objectives, record.baseline, self.settings.top_k
        )
        front = with_answer(front, self.settings.constraint)
        self.tracker.log_front(study, front, publish(record, front))
        for trial in front.members:
            self._log_model(trial)
        if self.registers(record):
            self.tracker.register(study, self.name, front.recommended)
        self._log_gate(study, front)
        return record, front

    def registers(self, record: StudyRecord) -> bool:
        """Return whether its models are registered: not where none meets the constraint."""
        constraint = self.settings.constraint
        met = not constraint.limits() or constraint.best(record.trials) is not None
        return self.settings.register_models and met

    def _log_gate(self, study: str, front: Front) -> None:
        """Record whether the front meets the gate, and which gate that was, if there is one."""
        gate = self.settings.gate
        if gate.limits():
            passed = "passed" if gate.best(front.members) else "failed"
            self.tracker.tag_study(study, {"seqto.gate": passed, "seqto.gate_limits": str(gate)})

    def _log_model(self, trial: Trial) -> None:
        subject = self.subject
        model = self.parts.quantizer.quantize(subject.model, subject.ranges, trial.candidate)
        if model.digest != trial.model_sha256:
            raise StudyError(
                f"candidate {trial.index} cannot be rebuilt as it was measured: seqto, onnx "
                "or onnxruntime changed since. Start afresh with study.resume=false."
            )
        facts = {**self.parts.device.describe(), **model.session}
        self.tracker.log_model(trial, model, subject.example, facts)


class _Measuring:
    """The trials of a study that ended: earlier ones, and those that are launched for it now."""

    def __init__(
        self, study: str, tracker: Tracker, launch: Launch, trials: Sequence[Trial]
    ) -> None:
        self._study, self._tracker, self._launch = study, tracker, launch
        self._ended = {
            each.candidate.key: each for each in trials if each.state is TrialState.COMPLETE
        }
        self.measured = 0

    def trials(self, batch: Sequence[Assignment]) -> Iterator[Trial]:
        """Yield the trials of these candidates, measured first where they are missing."""
        missing = [each for each in batch if each.candidate.key not in self._ended]
        launched = iter(self._launch(self._study, missing) if missing else ())
        self.measured += len(missing)
        for each in batch:
            # A launcher may give its trials one by one, as they end.
            while each.candidate.key not in self._ended:
                trial = self._tracker.trial(next(launched))
                self._ended[trial.candidate.key] = trial
            yield self._ended[each.candidate.key]
        # Not left behind its last trial: to a launcher that would be an interruption.
        next(launched, None)


def run_trial(
    parts: Parts, subject: Subject, tracker: Tracker, study: str | None, assignment: Assignment
) -> str:
    """Measure one candidate and return the id of its trial, which says so if it failed."""
    candidate = assignment.candidate
    trial = start_trial(tracker, study, assignment)
    try:
        model = parts.quantizer.quantize(subject.model, subject.ranges, candidate)
        twin = tracker.twin(study, model.digest) if study else None
        if twin is not None:
            session = needed_session(model, parts.device)
            measurement = Measurement(twin.metrics, model.digest, session)
        else:
            measurement = measure(model, subject, parts.device, parts.metric)
        _notice(undone(candidate, model, parts.device), assignment, parts.device.name)
    except Exception as error:
        tracker.end_trial(trial, TrialState.FAILED, reason(error))
    except BaseException:
        tracker.end_trial(trial, TrialState.KILLED, "interrupted")
        raise
    else:
        tracker.finish_trial(trial, measurement, twin.index if twin else None)
    return trial


def start_trial(tracker: Tracker, study: str | None, assignment: Assignment) -> str:
    """Return the id of a new trial, by a name that tells it apart."""
    candidate = assignment.candidate
    name = trial_name(assignment.index, candidate)
    return tracker.start_trial(study, assignment.index, candidate, name)


def record_attempt(
    tracker: Tracker, study: str, trial: str, assignment: Assignment, made: Attempt, device: str
) -> None:
    """Record how a candidate fared that was measured elsewhere."""
    measurement = made.measurement
    if measurement is None:
        tracker.end_trial(trial, TrialState.FAILED, made.failure)
        return
    _notice(made.undone, assignment, device)
    twin = tracker.twin(study, measurement.model_sha256)
    if twin is not None:
        measurement = replace(measurement, metrics=twin.metrics)
    tracker.finish_trial(trial, measurement, twin.index if twin else None)


def _notice(layers: Sequence[str], assignment: Assignment, device: str) -> None:
    """Warn of layers that are left in float in vain."""
    if layers:
        _log.warning(
            "%s runs %d layer(s) in integers that candidate %d leaves in float: %s.",
            *(device, len(layers), assignment.index, ", ".join(layers)),
        )


def _check_failures(failed: int, total: int, settings: StudySettings, last: Trial) -> None:
    if failed > settings.max_failed * total:
        raise StudyError(
            f"{failed} of {total} candidates failed, more than study.max_failed="
            f"{settings.max_failed:g} allows; the last one (candidate {last.index}): {last.failure}"
        )


@contextlib.contextmanager
def _alone(workspace: Workspace, key: str) -> Iterator[None]:
    """Hold the study's lock: two processes would take each other's running trials for leftovers."""
    path = workspace.lock(key)
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(path)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise StudyError(
            "another process is running this very study. Wait for it to end, or change "
            "the model, data or options to make it another study."
        ) from None
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def _opened(tracker: Tracker, plan: StudyPlan, resume: bool) -> Iterator[str]:
    """See to it that a study that ends early does not look as if it still ran, or had finished."""
    study = None
    try:
        # Interrupted any earlier, a study would be open that nobody knows of.
        with put_off():
            study = tracker.open_study(plan, resume)
        yield study
    except BaseException as error:
        if study is not None:
            failed = isinstance(error, Exception)
            tracker.close_study(study, TrialState.FAILED if failed else TrialState.KILLED)
        raise


def _what_counts(settings: object) -> object:
    """Return the settings without those that no result depends on."""
    if isinstance(settings, Mapping):
        return {k: _what_counts(v) for k, v in settings.items() if k not in _INCIDENTAL}
    return settings


def _flat(settings: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = "null" if value is None else str(value)
    return flat

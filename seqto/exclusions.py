"""Layers that a device cannot run quantized: learned from failures, and left out from then on."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from seqto.blame import Attempt, Verdict, find_culprits, is_blamable
from seqto.errors import DeviceError, DeviceTransportError, reason
from seqto.evaluate import Subject, measure
from seqto.graph.quantized import operations
from seqto.protocols import Search, Tracker
from seqto.screening import Screen, ScreenedSearch
from seqto.subject import Parts
from seqto.types import FLOAT32, Candidate, Layer, LayerScore, Table, Trial, TrialState

DOCUMENT = "device_exclusions.json"

_log = logging.getLogger(__name__)


@dataclass
class DeviceExclusions:
    """What a study knows of its device's limits; the tracker holds it too, with the evidence.

    `next_index` is the number of the first candidate that was chosen with this knowledge.
    """

    parts: Parts
    subject: Subject
    tracker: Tracker
    study: str
    ranking: Sequence[LayerScore]
    rows: list[dict[str, Any]] = field(default_factory=list)
    next_index: int = 0

    def __post_init__(self) -> None:
        """Take up what an earlier run of the study learned."""
        held = self.tracker.read_document(self.study, DOCUMENT)
        if held:
            self.rows, self.next_index = list(held["layers"]), int(held["next_index"])

    @property
    def layers(self) -> frozenset[str]:
        """The layers that are left in float32."""
        return frozenset(row["layer"] for row in self.rows)

    def learn(self, trial: Trial, next_index: int) -> bool:
        """Find out why a trial failed; tell whether layers were excluded for it."""
        if trial.state is not TrialState.FAILED or not is_blamable(trial.failure):
            return False
        if self.layers & _quantized(trial.candidate):
            # One of a batch: another one has explained it.
            return True
        verdict = self._verdict(trial)
        if verdict is None or not verdict.layers:
            return False
        self.next_index = next_index
        kinds = {each.layer.name: each.layer.op_type for each in self.ranking}
        for layer in verdict.layers:
            self.rows.append(_row(layer, kinds[layer], trial, verdict))
        self._record()
        _log.warning(
            "%s cannot run %s quantized (found by %s, %d tries): left in float32 from now on.",
            self.parts.device.name,
            ", ".join(verdict.layers),
            verdict.by,
            len(verdict.attempts),
        )
        return True

    def _verdict(self, trial: Trial) -> Verdict | None:
        layers = [each.layer for each in self.ranking]
        try:
            # One sample shows most failures; where it does not, the whole evaluation has to.
            for attempt in (self._try_one_sample, self._try_all):
                verdict = find_culprits(
                    trial.candidate, trial.failure, layers, attempt, self._introduced
                )
                if verdict is not None:
                    return verdict
        except DeviceTransportError as error:
            _log.warning("Which layers make candidate %d fail is not known: %s", trial.index, error)
        return None

    def _record(self) -> None:
        device = {"name": self.parts.device.name, **self.parts.device.describe()}
        document = {"device": device, "next_index": self.next_index, "layers": self.rows}
        self.tracker.log_document(self.study, DOCUMENT, document)

    def _try_one_sample(self, candidate: Candidate) -> str:
        def run() -> None:
            program = self.parts.device.load(self._model(candidate))
            try:
                program.run(self.subject.example)
                program.time(self.subject.example)
            finally:
                program.close()

        return _failure(run)

    def _try_all(self, candidate: Candidate) -> str:
        return _failure(
            lambda: measure(
                self._model(candidate), self.subject, self.parts.device, self.parts.metric
            )
        )

    def _model(self, candidate: Candidate) -> Any:
        subject = self.subject
        return self.parts.quantizer.quantize(subject.model, subject.ranges, candidate)

    def _introduced(self, layer: Layer) -> Collection[str]:
        others = [name for name in self.subject.layer_names if name != layer.name]
        alone = Candidate.excluding(self.subject.layer_names, others)
        return operations(self._model(alone)) - operations(self.subject.model)


def _failure(run: Any) -> str:
    """Return why this fails, or nothing; a broken link is no answer."""
    try:
        run()
    except DeviceTransportError:
        raise
    except DeviceError as error:
        return reason(error)
    return ""


def _row(layer: str, op_type: str, trial: Trial, verdict: Verdict) -> dict[str, Any]:
    kind, _, reason = trial.failure.partition(": ")
    return {
        "layer": layer,
        "op_type": op_type,
        "kind": kind,
        "failure": reason,
        "found_by": verdict.by,
        "candidate": trial.index,
        "run": trial.id,
        "attempts": [_attempt(each) for each in verdict.attempts],
    }


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return {**asdict(attempt), "works": not attempt.failure}


def _quantized(candidate: Candidate) -> set[str]:
    return {name for name, precision in candidate.precisions if precision != FLOAT32}


def _completed(candidate: Candidate, excluded: Collection[str]) -> Candidate:
    """Return the candidate with these layers, which it does not know, in float32."""
    completed = {**dict(candidate.precisions), **dict.fromkeys(excluded, FLOAT32)}
    return Candidate.of(completed, candidate.scheme)


def _shortened(candidate: Candidate, excluded: Collection[str]) -> Candidate:
    """Return the candidate without these layers."""
    left = {name: value for name, value in candidate.precisions if name not in excluded}
    return Candidate.of(left, candidate.scheme)


@dataclass
class ConfinedSearch:
    """A search over the layers that are left; the others are float32 in all it asks for."""

    inner: Search
    excluded: Collection[str]

    def __post_init__(self) -> None:
        """Take the inner search's name."""
        self.name = self.inner.name

    @property
    def screens(self) -> int:
        """As the inner search says."""
        return self.inner.screens

    @property
    def evaluations(self) -> int:
        """As the inner search says."""
        return self.inner.evaluations

    def table(self) -> Table:
        """Return what the inner search screened, if it screens."""
        return self.inner.table() if isinstance(self.inner, ScreenedSearch) else []

    def start(self, ranking: Sequence[LayerScore]) -> None:
        """Begin with the layers that are left."""
        self.inner.start([each for each in ranking if each.layer.name not in self.excluded])

    def ask(self, count: int) -> list[Candidate]:
        """Return the inner search's candidates, completed."""
        return [_completed(each, self.excluded) for each in self.inner.ask(count)]

    def tell(self, trial: Trial) -> None:
        """Tell the inner search of its own candidate."""
        self.inner.tell(replace(trial, candidate=_shortened(trial.candidate, self.excluded)))

    def remaining(self) -> int:
        """As the inner search says."""
        return self.inner.remaining()


class ConfinedScreen(Screen):
    """A screen for candidates without the excluded layers."""

    def __init__(self, screen: Screen, excluded: Collection[str]) -> None:
        self._inner, self._excluded = screen, excluded
        self.trials: dict[Candidate, Trial] = {}

    def measure(self, candidate: Candidate) -> Trial:
        """Return how the completed candidate fares, under the name of the one that was asked."""
        trial = self._inner.measure(_completed(candidate, self._excluded))
        self.trials[candidate] = replace(trial, candidate=candidate)
        return self.trials[candidate]


def fully_quantized(
    ranking: Sequence[LayerScore], precision: str, excluded: Collection[str]
) -> Candidate:
    """Return the candidate with every layer in this precision but the excluded ones."""
    names: Mapping[str, str] = {each.layer.name: precision for each in ranking}
    return _completed(_shortened(Candidate.of(names), excluded), excluded)

"""Layers that a device cannot run quantized: learned from failures, and left out from then on."""

import logging
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from seqto.errors import DeviceError, DeviceTransportError, reason
from seqto.graph.quantized import operations
from seqto.measuring.evaluate import measure
from seqto.measuring.parts import Parts
from seqto.measuring.subject import Subject
from seqto.protocols import Tracker
from seqto.study.blame import Blame, Probe, find_culprits, is_blamable
from seqto.types import FLOAT32, Candidate, Layer, LayerScore, Trial, TrialState

DOCUMENT = "device_exclusions.json"

_MOST_NAMED = 5

_log = logging.getLogger(__name__)


@dataclass
class DeviceLimits:
    """What a study knows about its device's limits; the tracker stores it with the evidence.

    `next_index` is the number of the first candidate chosen with this knowledge.
    """

    parts: Parts
    subject: Subject
    tracker: Tracker
    study: str
    ranking: Sequence[LayerScore]
    rows: list[dict[str, Any]] = field(default_factory=list)
    next_index: int = 0

    def __post_init__(self) -> None:
        """Load what an earlier run of the study learned."""
        held = self.tracker.read_document(self.study, DOCUMENT)
        if held:
            self.rows, self.next_index = list(held["layers"]), int(held["next_index"])

    @property
    def layers(self) -> frozenset[str]:
        """The layers that are left in float32."""
        return frozenset(row["layer"] for row in self.rows)

    @property
    def any_left(self) -> bool:
        """Whether there is a layer that the device may be able to run quantized."""
        return any(each.layer.name not in self.layers for each in self.ranking)

    def learn(self, trial: Trial, next_index: int) -> bool:
        """Find out why a trial failed, and return whether layers are excluded because of it."""
        if trial.state is not TrialState.FAILED or not is_blamable(trial.failure):
            return False
        if self.layers & _quantized(trial.candidate):
            # Another trial of the batch has already explained it.
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
            _listed(verdict.layers),
            verdict.by,
            len(verdict.attempts),
        )
        return True

    def _verdict(self, trial: Trial) -> Blame | None:
        layers = [each.layer for each in self.ranking]
        try:
            # One sample shows most failures; the whole evaluation shows the others.
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
        return _failure(lambda: measure(self._model(candidate), self.subject, self.parts.device))

    def _model(self, candidate: Candidate) -> Any:
        subject = self.subject
        return self.parts.quantizer.quantize(subject.model, subject.ranges, candidate)

    def _introduced(self, layer: Layer) -> Collection[str]:
        others = [name for name in self.subject.layer_names if name != layer.name]
        alone = Candidate.excluding(self.subject.layer_names, others)
        return operations(self._model(alone)) - operations(self.subject.model)


def _listed(layers: Sequence[str]) -> str:
    """Name a few layers and the number of further ones; the study's record has them all."""
    more = f" and {len(layers) - _MOST_NAMED} more layers" if len(layers) > _MOST_NAMED else ""
    return ", ".join(layers[:_MOST_NAMED]) + more


def _failure(run: Any) -> str:
    """Return why this fails, or "" if it works; raise if the device cannot be reached."""
    try:
        run()
    except DeviceTransportError:
        raise
    except DeviceError as error:
        return reason(error)
    return ""


def _row(layer: str, op_type: str, trial: Trial, verdict: Blame) -> dict[str, Any]:
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


def _attempt(attempt: Probe) -> dict[str, Any]:
    return {**asdict(attempt), "works": not attempt.failure}


def _quantized(candidate: Candidate) -> set[str]:
    return {name for name, precision in candidate.precisions if precision != FLOAT32}

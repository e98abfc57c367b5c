"""Candidates measured on a few samples, before any is evaluated in full.

A search may try hundreds of candidates. Each is first measured on a few calibration samples,
never on evaluation samples, and only candidates that may be on the front are evaluated.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from seqto.errors import CacheError, MetricError, reason
from seqto.figures import EXPECTED, PREDICTED
from seqto.freeing import give_back
from seqto.measuring.loss import losses_of
from seqto.measuring.outputs import outputs_of
from seqto.measuring.parts import Parts
from seqto.measuring.subject import Subject
from seqto.phases import say
from seqto.protocols import Device, ForeseesLoss, Previews, StandIn
from seqto.search.walk import Walk
from seqto.types import Candidate, LatencyModel, Model, Outputs, Samples, Table, Trial, TrialState
from seqto.workspace import kept_json

_SMALL = 2**20
"""The files of smaller models are made as fast as previews of them."""

_FORESEEN = 100
"""How many samples stand for those that candidates are evaluated on."""


class Screen:
    """Measures candidates on a few samples, each once, and keeps the results in a folder."""

    def __init__(self, parts: Parts, subject: Subject, samples: int, folder: Path) -> None:
        self._parts = parts
        self._subject = subject
        self._samples = subject.calibration.first(samples)
        self._folder = folder
        self._device = _screening(parts.device)
        # How close the float model's predictions are on these tells what noise does to them.
        known = samples if self._task is None else max(samples, _FORESEEN)
        self._known = self._outputs(subject.model, subject.calibration.first(known))
        self._reference = {name: each[:samples] for name, each in self._known.items()}
        self._harm = subject.task.harm(self._reference)
        self.trials: dict[Candidate, Trial] = {}
        self.latencies: Mapping[str, LatencyModel] = {}
        """What predicts how long candidates take, by their scheme, if anything does."""

    def measure_all(self, walk: Walk) -> None:
        """Measure every candidate that the search asks for, and tell it the results."""
        say("screening", 0, walk.remaining())
        while candidates := walk.ask(1):
            walk.tell(self.measure(candidates[0]))
            say("screening", len(self.trials), len(self.trials) + walk.remaining())
        give_back()

    def measure(self, candidate: Candidate) -> Trial:
        """Return the candidate's divergence from the float model, disagreement and size.

        A candidate that cannot be measured is a FAILED trial, as it would be in a study.
        """
        if candidate not in self.trials:
            trial = Trial("", len(self.trials), candidate, TrialState.COMPLETE)
            try:
                metrics = {**self._kept(candidate), **self._predicted(candidate)}
                self.trials[candidate] = replace(trial, metrics=metrics)
            except (MetricError, CacheError):
                raise
            except Exception as error:
                failed = replace(trial, state=TrialState.FAILED, failure=reason(error))
                self.trials[candidate] = failed
        return self.trials[candidate]

    def table(self, evaluated: Sequence[Candidate]) -> Table:
        """Return the screened candidates as plain rows by size, marked if evaluated in full."""
        rows: list[dict[str, str | float | bool | None]] = [
            {
                "key": trial.candidate.key,
                "scheme": trial.candidate.scheme,
                "evaluated": trial.candidate in evaluated,
                **trial.metrics,
                "failure": trial.failure or None,
            }
            for trial in self.trials.values()
        ]
        return sorted(rows, key=lambda row: float(row.get("size_bytes") or 0))

    def _predicted(self, candidate: Candidate) -> dict[str, float]:
        latency = self.latencies.get(candidate.scheme)
        return {} if latency is None else {PREDICTED: latency.predict(candidate)}

    def _kept(self, candidate: Candidate) -> dict[str, float]:
        """Return the candidate's metrics from the folder; measure and store them if missing."""
        path = self._folder / f"{candidate.key}.json"
        metrics: dict[str, float] = kept_json(path, lambda: self._measured(candidate))
        return metrics

    def _measured(self, candidate: Candidate) -> dict[str, float]:
        if candidate.is_float:
            # It is what all are compared with.
            size = float(self._subject.model.size)
            expected = self._expected(self._reference)
            return {"divergence": 0.0, "disagreement": 0.0, **expected, "size_bytes": size}
        model, size = self._shown(candidate)
        outputs = self._outputs(model, self._samples)
        losses = losses_of(self._subject.metric, self._reference, outputs)
        return {
            "divergence": float(self._harm.per_sample(outputs).mean()),
            "disagreement": float(losses.mean()),
            **self._expected(outputs),
            "size_bytes": size,
        }

    def _expected(self, outputs: Outputs) -> dict[str, float]:
        """Return the loss to be expected on other samples, if the task can tell."""
        if self._task is None:
            return {}
        expected = self._task.expected_loss(self._known, self._reference, outputs)
        return {} if expected is None else {EXPECTED: expected}

    @property
    def _task(self) -> ForeseesLoss | None:
        """The task, if it can tell losses of the metric."""
        task = self._subject.task
        fits = self._subject.metric == task.metric
        return task if isinstance(task, ForeseesLoss) and fits else None

    def _shown(self, candidate: Candidate) -> tuple[Model, float]:
        """Return a model with the candidate's outputs, and about how large its file will be."""
        quantizer, subject = self._parts.quantizer, self._subject
        # Schemes differ in size by less than the estimate is off, and so do small models.
        whole = bool(candidate.scheme) or subject.model.size < _SMALL
        if whole or not isinstance(quantizer, Previews):
            model = quantizer.quantize(subject.model, subject.ranges, candidate)
            return model, float(model.size)
        precisions = dict(candidate.precisions)
        # A weight that several layers share is in the file once.
        saved = {
            layer.weight or layer.name: layer.weight_bytes
            - quantizer.stored_bytes(layer, precisions[layer.name])
            for layer in subject.layers
        }
        model = quantizer.preview(subject.model, subject.ranges, candidate)
        return model, float(subject.model.size - sum(saved.values()))

    def _outputs(self, model: Model, samples: Samples) -> Outputs:
        subject = self._subject
        return outputs_of(model, samples, subject.batch, self._device, subject.observed)


def _screening(device: Device) -> Device:
    """Return the device, or its faster stand-in if loading a model on it takes long."""
    return device.stand_in if isinstance(device, StandIn) else device

"""How long candidates will take: profiled once a study, and fitted to a few measured mixes.

A device that does not tell how long each layer takes is timed with the whole model in each
precision, and the layers' shares of that are those of a profile on this CPU. How far that carries
is seen from the mixes: where predictions of mixes are too far off, there is none.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from seqto.devices.onnxruntime import OnnxRuntimeDevice
from seqto.graph.passages import flow_of, passages_of
from seqto.measuring.node_times import NodeTimes, node_times
from seqto.measuring.parts import Parts
from seqto.measuring.subject import Subject
from seqto.measuring.turns import time_in_turns
from seqto.phases import say
from seqto.protocols import Device, Profiles, previewed
from seqto.search.walk import complete
from seqto.types import (
    FLOAT32,
    Candidate,
    LatencyModel,
    Model,
    Passage,
    Rates,
    TimedLayer,
    TimedOperation,
    family,
)

PROBES = 8
"""How many mixes are measured to learn what conversions take."""

_RUNS = (1, 1, 2, 2, 4, 4, 8, 16)
"""About how many layers in a row have the same precision, in each of the mixes."""

_USELESS = 0.25
"""With a larger error, predictions would not tell fast candidates from slow ones."""

_log = logging.getLogger(__name__)


class _Profiler(Device, Profiles, Protocol):
    """A device that tells how long each kernel takes."""


@dataclass(frozen=True)
class _Profiled:
    """The nodes' times with all layers in one precision, as fast as the whole model was."""

    precision: str
    times: NodeTimes
    model: Model

    def scaled(self, ms: float) -> "_Profiled":
        """Return the same with times that sum up to this."""
        factor = ms / max(sum(self.times.ms.values()) + self.times.rest_ms, 1e-9)
        own = {name: factor * each for name, each in self.times.ms.items()}
        times = replace(self.times, ms=own, rest_ms=factor * self.times.rest_ms)
        return replace(self, times=times)


def find_latency_model(
    parts: Parts, subject: Subject, scheme: str = "", left_out: Collection[str] = ()
) -> LatencyModel | None:
    """Return what predicts the latency of candidates in this scheme; None if nothing can.

    `left_out` are the layers that the device cannot run quantized.
    """
    say("profiling layers")
    builder = _Builder(parts, subject, scheme, left_out)
    profiled = builder.profiled()
    mixes = builder.mixes([each.precision for each in profiled.values()])
    uniform = [each.model for name, each in profiled.items() if name != FLOAT32]
    models = [builder.model(each) for each in mixes]
    say("timing mixes")
    float_model = profiled[FLOAT32].model
    latencies, own = time_in_turns([*uniform, *models], float_model, subject.example, parts.device)
    measured = [each.median_ms for each in latencies]
    wholes = dict(zip(profiled, [own.median_ms, *measured[: len(uniform)]], strict=True))
    scaled = {name: each.scaled(wholes[name]) for name, each in profiled.items()}
    found = fitted(builder.assembled(scaled), mixes, measured[len(uniform) :])
    if found.error > _USELESS:
        _log.warning(
            "On %s the latency of mixes is off by %.0f %% of what their layers take by themselves.",
            *(parts.device.name, 100 * found.error),
        )
        return None
    return found


class _Builder:
    """Builds and profiles the models that a prediction is made from."""

    def __init__(
        self, parts: Parts, subject: Subject, scheme: str, left_out: Collection[str]
    ) -> None:
        self._parts, self._subject = parts, subject
        self._scheme, self._left_out = scheme, left_out
        self._units = {each.name: each.unit for each in subject.layers}
        self._profiler = self._find_profiler()

    def model(self, candidate: Candidate) -> Model:
        """Return a model that is as fast as the candidate's."""
        quantizer, subject = self._parts.quantizer, self._subject
        return previewed(quantizer, subject.model, subject.ranges, candidate)

    def profiled(self) -> dict[str, _Profiled]:
        """Return profiles by family of precisions, float32 first, of those that run differently."""
        found = {FLOAT32: self._profile(FLOAT32, self.model(self._uniform(FLOAT32)))}
        for name in self._families():
            model = self.model(self._uniform(name))
            if not self._runs_as_float(model):
                found[family(name)] = self._profile(name, model)
        return found

    def _find_profiler(self) -> _Profiler:
        """Return the device, or this CPU if the device cannot tell how long each kernel takes."""
        device, subject = self._parts.device, self._subject
        if isinstance(device, Profiles) and device.profile(subject.model, subject.example):
            return device
        return OnnxRuntimeDevice()

    def mixes(self, precisions: Sequence[str]) -> list[Candidate]:
        """Return random mixes of these precisions, in longer and shorter runs of layers."""
        if len(precisions) < 2:
            return []
        draw = np.random.RandomState(0)
        found = [self._mix(precisions, run, draw) for run in _RUNS[:PROBES]]
        return list(dict.fromkeys(each for each in found if not each.is_float))

    def assembled(self, profiled: Mapping[str, _Profiled]) -> LatencyModel:
        """Return the model of latency that these profiles give, without the cost of conversions."""
        passages = passages_of(self._subject.model, self._subject.example)
        layers = tuple(self._layer(name, profiled) for name in self._units)
        operations = self._operations(profiled, passages)
        flexible = {each.name for each in operations if each.integer_ms is not None}
        known = {*self._units, *flexible}
        inner = tuple(
            replace(each, readers=readers)
            for each in passages
            # What operations that stay in float need is in the times of the layers beside them.
            if each.maker in known and (readers := tuple(r for r in each.readers if r in known))
        )
        rest = profiled[FLOAT32].times.rest_ms
        return LatencyModel(layers, operations, inner, fixed_ms=rest)

    def _layer(self, name: str, profiled: Mapping[str, _Profiled]) -> TimedLayer:
        choices = (FLOAT32,) if name in self._left_out else self._parts.choices
        floating = profiled[FLOAT32].times
        ms, integers = {FLOAT32: floating.ms.get(name, 0.0)}, []
        for choice in choices:
            times = profiled.get(family(choice), profiled[FLOAT32]).times
            ms[choice] = times.ms.get(name, 0.0)
            # Another kernel may want its tensors in another layout, even if they are floats.
            if name in times.integers or times.kinds.get(name) != floating.kinds.get(name):
                integers.append(choice)
        return TimedLayer(name, ms, tuple(integers))

    def _operations(
        self, profiled: Mapping[str, _Profiled], passages: Sequence[Passage]
    ) -> tuple[TimedOperation, ...]:
        before, after = flow_of(self._subject.model, passages)
        floating = profiled[FLOAT32].times
        # Of several precisions that run otherwise, one that passes on integers shows what
        # operations do.
        others = [each.times for each in profiled.values() if each.times is not floating]
        beside = next((each for each in others if each.integers), [*others, floating][0])
        return tuple(
            TimedOperation(
                node.name,
                floating.ms.get(node.name, 0.0),
                _beside_layers(node.name, beside),
                before[node.name],
                after[node.name],
            )
            for node in self._subject.model.proto.graph.node
            if node.name not in self._units
        )

    def _families(self) -> list[str]:
        """Return one precision of each family but float32."""
        firsts = {family(each): each for each in reversed(self._parts.choices)}
        return [each for name, each in firsts.items() if name != FLOAT32]

    def _uniform(self, precision: str) -> Candidate:
        every = Candidate.of(dict.fromkeys(self._units, precision))
        return complete(every, self._left_out, self._scheme)

    def _profile(self, precision: str, model: Model) -> _Profiled:
        profile = self._profiler.profile(model, self._subject.example)
        nodes = {node.name for node in self._subject.model.proto.graph.node}
        return _Profiled(precision, node_times(profile or (), {*self._units}, nodes), model)

    def _runs_as_float(self, model: Model) -> bool:
        """Return whether the same operations run the layers of this model as of the float model."""
        kinds = [self._profiler.kernels(each) for each in (model, self._subject.model)]
        return all(
            name in kinds[0] and kinds[0][name].op_type == kinds[1][name].op_type
            for name in self._units
            if name in kinds[1]
        )

    def _mix(self, precisions: Sequence[str], run: int, draw: np.random.RandomState) -> Candidate:
        """Return a mix in which precisions change after `run` layers, on average."""
        chosen: dict[str, str] = {}
        now = precisions[draw.randint(len(precisions))]
        for unit in dict.fromkeys(self._units.values()):
            if draw.rand() < 1 / run:
                now = precisions[draw.randint(len(precisions))]
            chosen[unit] = now
        precision_of = {name: chosen[unit] for name, unit in self._units.items()}
        return complete(Candidate.of(precision_of), self._left_out, self._scheme)


def _beside_layers(name: str, times: NodeTimes) -> float | None:
    """Return what an operation takes beside integer layers; None if it stays as it is there."""
    # One that runs as a part of a layer has no time of its own.
    follows = not times.integers or name in times.integers or name not in times.ms
    return times.ms.get(name, 0.0) if follows else None


def fitted(
    model: LatencyModel, mixes: Sequence[Candidate], measured: Sequence[float]
) -> LatencyModel:
    """Return the model with what conversions take by these measurements, and its error.

    The error is the mean of what the prediction of each mix is off by if it is left out.
    """
    if not mixes:
        return model
    off = []
    for at in range(len(mixes)):
        others = [place for place in range(len(mixes)) if place != at]
        rates = _rates(model, [mixes[i] for i in others], [measured[i] for i in others])
        predicted = replace(model, rates=rates).predict(mixes[at])
        off.append(abs(predicted - measured[at]) / measured[at])
    rates = _rates(model, mixes, measured)
    _log.info("conversions: %s; predictions are off by %.1f %%", rates, 100 * np.mean(off))
    return replace(model, rates=rates, error=float(np.mean(off)))


def _rates(model: LatencyModel, mixes: Sequence[Candidate], measured: Sequence[float]) -> Rates:
    """Return the rates with which predictions are nearest to the measurements, none below 0."""
    if not mixes:
        return Rates()
    rows, left = [], []
    for mix, ms in zip(mixes, measured, strict=True):
        crossings = model.crossings(model.on_integers(dict(mix.precisions)))
        # Relative to the measurement: the error that counts is a share of it.
        rows.append(np.array([crossings.quantized, crossings.dequantized, crossings.count]) / ms)
        left.append((ms - replace(model, rates=Rates()).predict(mix)) / ms)
    # Half a second, which a study that does not look for speed need not wait before its first line.
    from scipy.optimize import nnls

    table = np.array(rows)
    scale = np.maximum(np.abs(table).max(axis=0), 1e-12)
    found, _ = nnls(table / scale, np.array(left))
    return Rates(*(float(each) for each in found / scale))

"""What a study computes once and keeps in the workspace for other processes."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from seqto import __version__
from seqto.datasets.feeding import load_splits
from seqto.freeing import give_back
from seqto.graph.constants import with_constants
from seqto.graph.groups import run_as_one
from seqto.graph.interface import interface_of
from seqto.graph.prepare import prepare
from seqto.identity import identity
from seqto.measuring.learned import load_learned, save_learned
from seqto.measuring.loss import check_metric
from seqto.measuring.meaning import find_task, float_scores
from seqto.measuring.outputs import load_outputs, outputs_of, save_outputs
from seqto.measuring.parts import Parts
from seqto.measuring.remarks import remarks_on
from seqto.measuring.together import usable_batch
from seqto.packages import installed_version
from seqto.phases import say
from seqto.protocols import Harm, Learns, Metric, Task
from seqto.types import (
    Arrays,
    Interface,
    Layer,
    LayerScore,
    Learned,
    Model,
    Observed,
    Outputs,
    Ranges,
    Samples,
    content_key,
)
from seqto.workspace import Workspace, kept, kept_json

_AT_A_TIME = 2
"""Samples per inference: with more, activations overflow the CPU's caches, 3 to 10 % slower."""

_JUDGED = 32
"""On how many of the first samples layers and candidates are judged, by default.

Nothing is learned from them: what was learned from a sample looks up to 24 times better on it. Of
fewer than three times as many samples, it is the first third.
"""

_PREPARING, _TRYING = "preparing the model", "trying the model"

# Other versions may compute something else.
_VERSIONS = (__version__, installed_version("onnxruntime"))


@dataclass(frozen=True, eq=False)
class Subject:
    """What all candidates of a study share.

    `model` is the float model, prepared for the quantizer, with what this one learned; `observed`
    its outputs that count, and `reference` their values for `samples`; `task` says what they mean
    and `metric` what a loss is; `guess` is why it is this task, if nobody said so. `baseline` has
    the figures of the original; `batch` is how many samples run at a time.
    """

    model: Model
    original_sha256: str
    layers: tuple[Layer, ...]
    calibration: Samples
    ranges: Ranges
    samples: Samples
    fingerprint: str
    observed: Observed
    reference: Outputs
    task: Task
    metric: Metric
    baseline: Mapping[str, float]
    batch: int
    guess: str = ""
    remarks: tuple[str, ...] = ()
    """What users should know before they read the figures."""

    @property
    def example(self) -> Arrays:
        """One sample, or a whole batch if the model's batch size is fixed."""
        return next(self.samples.batches(1))

    @property
    def layer_names(self) -> list[str]:
        """The names of the layers, in the order of the graph."""
        return [layer.name for layer in self.layers]

    @functools.cached_property
    def harm(self) -> Harm:
        """The measure of the distance to the reference."""
        return self.task.harm(self.reference)


def prepare_subject(
    parts: Parts,
    workspace: Workspace,
    ranges: Mapping[str, Any] | None = None,
    learned: Learned | None = None,
) -> Subject:
    """Return what all candidates share: the model, its layers, ranges, samples and outputs.

    If the study's ranges are given, nothing is calibrated; if what it learned is, nothing is
    learned.
    """
    say(_PREPARING, 0, 3)
    original = parts.source.load()
    say(_PREPARING, 1, 3)
    sha, size = original.digest, float(original.size)
    floating = prepare(with_constants(original, parts.reading.constants))
    # Free a large model as soon as it is no longer needed.
    del original
    say(_PREPARING, 2, 3)
    model, layers = parts.quantizer.prepare(floating)
    interface = interface_of(floating, parts.reading)
    observed = Observed(interface.outputs)
    say("reading samples", 0, 1)
    splits = load_splits(parts.dataset, interface)
    say(_TRYING, 0, 2)
    task, guess = find_task(parts, floating, interface, splits)
    batch = _batch(parts, interface, observed)
    say(_TRYING, 1, 2)
    batch = usable_batch(floating, splits.calibration, batch, observed)
    contents = [sha, splits.fingerprint, *_VERSIONS, identity(parts.reading)]
    reference = _reference(parts, workspace, floating, splits.evaluation, batch, observed, contents)
    metric = parts.metric or task.metric
    check_metric(metric, reference)
    # Wrong targets are told before anything is calibrated.
    scores = float_scores(task, reference, splits.evaluation, parts.dataset)
    known = (
        _as_ranges(ranges)
        if ranges is not None
        else _ranges(parts, workspace, model, splits.calibration, contents)
    )
    if learned is None:
        learned = _learned(parts, workspace, model, known, splits.calibration, contents)
    give_back()
    return Subject(
        model=replace(model, learned=learned),
        original_sha256=sha,
        layers=run_as_one(model, layers, parts.device.kernels(model)),
        calibration=splits.calibration,
        samples=splits.evaluation,
        fingerprint=splits.fingerprint,
        observed=observed,
        reference=reference,
        task=task,
        metric=metric,
        baseline={"size_bytes": size, **scores},
        ranges=known,
        batch=batch,
        guess=guess,
        remarks=remarks_on(model, layers, size, task, reference),
    )


def rank_layers(parts: Parts, subject: Subject, workspace: Workspace) -> tuple[LayerScore, ...]:
    """Return the layers, those that quantization hurts most first."""
    ranked = [identity(part) for part in (parts.quantizer, parts.sensitivity, subject.task)]
    ranked += [identity(parts.reading), dict(subject.observed.axes)]
    key = content_key([subject.original_sha256, subject.fingerprint, *_VERSIONS, *ranked])

    def compute() -> list[dict[str, Any]]:
        say("ranking layers", 0, len(subject.layers))
        scores = parts.sensitivity.score(
            subject.model,
            subject.layers,
            parts.quantizer,
            subject.ranges,
            subject.calibration,
            subject.observed,
            subject.task,
        )
        give_back()
        return [asdict(score) for score in scores]

    rows = kept_json(workspace.scores(key), compute)
    layers = {layer.name: replace(layer, position=at) for at, layer in enumerate(subject.layers)}
    # The scores may come from another device, which runs other layers as one.
    return tuple(_score(row, layers[row["layer"]["name"]], parts) for row in rows)


def _score(row: Mapping[str, Any], layer: Layer, parts: Parts) -> LayerScore:
    """Return a layer's stored score, with the layer's bytes in each precision."""
    sizes = {name: parts.quantizer.stored_bytes(layer, name) for name in parts.choices}
    return LayerScore(layer, row["score"], row["details"], row["costs"], sizes)


def _batch(parts: Parts, interface: Interface, observed: Observed) -> int:
    """Return how many samples run at a time."""
    if interface.fixed_batch:
        return interface.fixed_batch
    # An input without an axis for samples is fed whole.
    whole = observed.one_by_one or None in interface.batch_axes.values()
    alone = whole or not parts.quantizer.batch_invariant
    return 1 if alone else min(parts.dataset.chunk_size, _AT_A_TIME)


def _ranges(
    parts: Parts, workspace: Workspace, model: Model, samples: Samples, contents: Sequence[str]
) -> Ranges:
    key = content_key([*contents, identity(parts.quantizer)])
    stored = kept_json(
        workspace.ranges(key), lambda: dict(parts.quantizer.calibrate(model, samples))
    )
    return _as_ranges(stored)


def _learned(
    parts: Parts,
    workspace: Workspace,
    model: Model,
    ranges: Ranges,
    samples: Samples,
    contents: Sequence[str],
) -> Learned:
    """Return what the quantizer learns from the samples, or learned before."""
    quantizer = parts.quantizer
    if not isinstance(quantizer, Learns):
        return {}
    taught = samples.after(min(_JUDGED, len(samples) // 3))

    def learn(path: Path) -> None:
        save_learned(quantizer.learn(model, ranges, taught), path)

    # Loaded also right after it was learned, so that another process gets the very same.
    key = content_key([*contents, identity(quantizer)])
    return load_learned(kept(workspace.learned(key), learn))


def _as_ranges(stored: Mapping[str, Any]) -> Ranges:
    return {name: (low, high) for name, (low, high) in stored.items()}


def _reference(
    parts: Parts,
    workspace: Workspace,
    model: Model,
    samples: Samples,
    batch: int,
    observed: Observed,
    contents: Sequence[Any],
) -> Outputs:
    device = [identity(parts.device), dict(parts.device.describe())]
    key = content_key([*contents, *device, batch, dict(observed.axes)])

    def run(path: Path) -> None:
        what = "running the float model"
        save_outputs(outputs_of(model, samples, batch, parts.device, observed, what), path)

    return load_outputs(kept(workspace.reference(key), run), len(samples))

"""What a study computes once and keeps in the workspace for other processes."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from seqto import __version__
from seqto.errors import DatasetError, ModelError
from seqto.graph.groups import run_as_one
from seqto.graph.load import input_specs
from seqto.graph.prepare import prepare
from seqto.identity import identity
from seqto.measuring.outputs import outputs_of
from seqto.measuring.parts import Parts
from seqto.metrics.agreement import accuracy, class_scores
from seqto.types import (
    Arrays,
    Layer,
    LayerScore,
    Model,
    Ranges,
    Samples,
    Splits,
    TensorSpec,
    content_key,
)
from seqto.workspace import Workspace, written_whole

_AT_A_TIME = 4
"""Samples per inference: with more, activations overflow the CPU's caches, 10 % slower."""

# Other versions may compute something else.
_VERSIONS = (__version__, version("onnxruntime"))


@dataclass(frozen=True, eq=False)
class Subject:
    """What all candidates of a study share.

    `model` is the float model, prepared for the quantizer; `reference` its outputs for `samples`;
    `baseline` the figures of the original; `batch` how many samples run at a time.
    """

    model: Model
    original_sha256: str
    layers: tuple[Layer, ...]
    calibration: Samples
    ranges: Ranges
    samples: Samples
    fingerprint: str
    reference: np.ndarray
    baseline: Mapping[str, float]
    batch: int

    @property
    def example(self) -> Arrays:
        """One sample, or a whole batch if the model's batch size is fixed."""
        return next(self.samples.batches(1))

    @property
    def layer_names(self) -> list[str]:
        """The names of the layers, in the order of the graph."""
        return [layer.name for layer in self.layers]


def prepare_subject(
    parts: Parts, workspace: Workspace, ranges: Mapping[str, Any] | None = None
) -> Subject:
    """Return what all candidates share: the model, its layers, ranges, samples and outputs.

    If the study's ranges are given, nothing is calibrated.
    """
    original = parts.source.load()
    sha, size = original.digest, float(original.size)
    floating = prepare(original)
    # Free a large model as soon as it is no longer needed.
    del original
    model, layers = parts.quantizer.prepare(floating)
    specs = input_specs(floating)
    fixed = _fixed_batch(specs)
    free = min(parts.dataset.chunk_size, _AT_A_TIME) if parts.quantizer.batch_invariant else 1
    batch = fixed or free
    splits = _in_batches(parts.dataset.load(specs), fixed)
    contents = [sha, splits.fingerprint, *_VERSIONS]
    reference = _reference(parts, workspace, floating, splits.evaluation, batch, contents)
    return Subject(
        model=model,
        original_sha256=sha,
        layers=run_as_one(model, layers, parts.device.kernels(model)),
        calibration=splits.calibration,
        ranges=_as_ranges(ranges)
        if ranges is not None
        else _ranges(parts, workspace, model, splits.calibration, contents),
        samples=splits.evaluation,
        fingerprint=splits.fingerprint,
        reference=reference,
        baseline={"size_bytes": size, **_accuracy(reference, splits.evaluation)},
        batch=batch,
    )


def rank_layers(parts: Parts, subject: Subject, workspace: Workspace) -> tuple[LayerScore, ...]:
    """Return the layers, those that quantization hurts most first."""
    ranked = [identity(parts.quantizer), identity(parts.sensitivity)]
    key = content_key([subject.original_sha256, subject.fingerprint, *_VERSIONS, *ranked])

    def compute() -> list[dict[str, Any]]:
        scores = parts.sensitivity.score(
            subject.model, subject.layers, parts.quantizer, subject.ranges, subject.calibration
        )
        return [asdict(score) for score in scores]

    rows = _stored_json(workspace.scores(key), compute)
    layers = {layer.name: layer for layer in subject.layers}
    # The scores may come from another device, which runs other layers as one.
    return tuple(_score(row, layers[row["layer"]["name"]], parts) for row in rows)


def _score(row: Mapping[str, Any], layer: Layer, parts: Parts) -> LayerScore:
    """Return a layer's stored score, with the layer's bytes in each precision."""
    sizes = {name: parts.quantizer.stored_bytes(layer, name) for name in parts.precisions}
    return LayerScore(layer, row["score"], row["details"], row["costs"], sizes)


def _fixed_batch(specs: Sequence[TensorSpec]) -> int | None:
    """Return the model's fixed batch size, or None if it takes any."""
    single = [spec for spec in specs if not spec.shape]
    if single:
        raise ModelError(
            f"model input {single[0]} has no axis for samples: make it a constant of the model, or "
            "export it with a batch dimension."
        )
    fixed = {spec.shape[0] for spec in specs} - {None}
    if len(fixed) > 1:
        raise ModelError(
            f"the model's inputs ({', '.join(map(str, specs))}) do not agree on the number of "
            "samples, their first dimension: export it with a free batch dimension, or with a "
            "batch of 1."
        )
    return fixed.pop() if fixed else None


def _in_batches(splits: Splits, fixed: int | None) -> Splits:
    """Return the splits, set to this batch size if it is fixed."""
    if fixed is None or fixed == 1:
        return splits
    # At least two batches, because rankings are compared between two halves of the samples.
    if len(splits.calibration) < 2 * fixed:
        raise DatasetError(
            f"the model takes batches of exactly {fixed} samples: set dataset.calibration_size to "
            f"{2 * fixed} or more (it is {len(splits.calibration)}), or export the model with a "
            "free batch dimension."
        )
    return replace(
        splits,
        calibration=replace(splits.calibration, fixed_batch=fixed),
        evaluation=replace(splits.evaluation, fixed_batch=fixed),
    )


def _ranges(
    parts: Parts, workspace: Workspace, model: Model, samples: Samples, contents: Sequence[str]
) -> Ranges:
    key = content_key([*contents, identity(parts.quantizer)])
    stored = _stored_json(
        workspace.ranges(key), lambda: dict(parts.quantizer.calibrate(model, samples))
    )
    return _as_ranges(stored)


def _as_ranges(stored: Mapping[str, Any]) -> Ranges:
    return {name: (low, high) for name, (low, high) in stored.items()}


def _reference(
    parts: Parts,
    workspace: Workspace,
    model: Model,
    samples: Samples,
    batch: int,
    contents: Sequence[str],
) -> np.ndarray:
    device = [identity(parts.device), dict(parts.device.describe())]
    path = workspace.reference(content_key([*contents, *device, batch]))
    if not path.exists():
        outputs = outputs_of(model, samples, batch, parts.device)
        with written_whole(path) as temporary:
            np.save(temporary, outputs)
    return np.asarray(np.load(path))


def _accuracy(reference: np.ndarray, samples: Samples) -> dict[str, float]:
    if samples.targets is None:
        return {}
    labels = np.asarray(samples.targets)
    classes = class_scores(reference).shape[-1]
    if labels.min() < 0 or labels.max() >= classes:
        wrong = labels.min() if labels.min() < 0 else labels.max()
        raise DatasetError(
            f"a label is {wrong}, but the model has the classes 0 to {classes - 1}: give labels in "
            "the model's own numbering, or none."
        )
    return {"accuracy": accuracy(reference, labels)}


def _stored_json(path: Path, compute: Callable[[], Any]) -> Any:
    """Return the file's content; compute and write it first if the file is missing."""
    if not path.exists():
        content = compute()
        with written_whole(path) as temporary:
            temporary.write_text(json.dumps(content))
    return json.loads(path.read_text())

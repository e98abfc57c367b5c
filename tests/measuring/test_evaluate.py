"""One candidate to a measurement."""

import hashlib
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_models import observed, residual, run
from quantizable_models import random_samples, unsteady
from suite_quantizers import Prepared

from seqto.devices.onnxruntime import OnnxRuntimeDevice
from seqto.errors import DeviceError
from seqto.graph.prepare import prepare
from seqto.measuring.evaluate import measure, undone
from seqto.measuring.outputs import run_all
from seqto.measuring.subject import Subject
from seqto.metrics.agreement import Top1Agreement, TopKAgreement
from seqto.protocols import MeasuresLoading
from seqto.quantizers.static import StaticQuantizer
from seqto.tasks.classification import Classification
from seqto.types import Candidate, Model, Outputs, Samples

DEVICE = OnnxRuntimeDevice(warmup=1, repeats=3)
LOADING = ("load_ms", "load_peak_bytes") if sys.platform == "linux" else ("load_ms",)


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    """Return a model, badly quantized on purpose so that predictions differ."""
    floating = prepare(residual())
    samples = random_samples(floating, count=40)
    quantizer = StaticQuantizer(calibration="percentile", percentile=60, per_channel=False)
    return Prepared(quantizer, floating, samples)


@pytest.fixture
def subject(prepared: Prepared) -> Subject:
    """Return what the candidates share; the float model is right by definition."""
    reference = run(prepared.floating, prepared.inputs)[0]
    return Subject(
        model=prepared.model,
        original_sha256="ab" * 32,
        layers=prepared.layers,
        calibration=prepared.samples,
        ranges=prepared.ranges,
        samples=replace(prepared.samples, targets=reference.argmax(axis=1)),
        fingerprint="random",
        observed=observed(prepared.model),
        reference={"y": reference},
        task=Classification(),
        metric=Top1Agreement(),
        baseline={"size_bytes": 10_000.0, "accuracy": 1.0},
        batch=7,
    )


def test_subject_knows_its_layers_and_one_sample(subject: Subject) -> None:
    assert subject.layer_names == ["stem", "left", "right", "head"]
    assert {name: array.shape for name, array in subject.example.items()} == {"x": (1, 3, 8, 8)}


def test_float_model_loses_nothing(subject: Subject) -> None:
    metrics = measure(subject.model, subject, DEVICE).metrics
    assert metrics["accuracy_loss"] == metrics["accuracy_drop"] == 0.0
    assert metrics["accuracy"] == 1.0


def test_size_is_that_of_the_onnx_file(
    subject: Subject, prepared: Prepared, tmp_path: Path
) -> None:
    candidate = prepared.excluding("left")
    path = tmp_path / "candidate.onnx"
    onnx.save(candidate.proto, path)
    metrics = measure(candidate, subject, DEVICE).metrics
    assert metrics["size_bytes"] == path.stat().st_size
    assert metrics["size_ratio"] == path.stat().st_size / 10_000


def test_sha256_is_that_of_the_models_bytes(subject: Subject, prepared: Prepared) -> None:
    candidate = prepared.excluding()
    found = measure(candidate, subject, DEVICE).model_sha256
    assert found == hashlib.sha256(candidate.to_bytes()).hexdigest()


def test_loss_and_drop_are_positive_for_a_worse_model(subject: Subject, prepared: Prepared) -> None:
    candidate = prepared.excluding()
    outputs = DEVICE.load(candidate).run(subject.samples.inputs)[0]
    wrong = float(np.mean(outputs.argmax(1) != subject.reference["y"].argmax(1)))
    metrics = measure(candidate, subject, DEVICE).metrics
    assert 0 < wrong < 1
    assert metrics["accuracy_loss"] == wrong
    # The labels are the float model's own predictions, so both count the same.
    assert metrics["accuracy"] == 1 - wrong
    assert metrics["accuracy_drop"] == pytest.approx(wrong)


def test_drop_is_negative_for_a_better_model(subject: Subject) -> None:
    worse = replace(subject, baseline={"size_bytes": 1.0, "accuracy": 0.25})
    metrics = measure(subject.model, worse, DEVICE).metrics
    assert metrics["accuracy_drop"] == -0.75


def test_the_metric_decides_on_the_loss(subject: Subject, prepared: Prepared) -> None:
    candidate = prepared.excluding()
    top, some = (
        measure(candidate, replace(subject, metric=metric), DEVICE).metrics["accuracy_loss"]
        for metric in (Top1Agreement(), TopKAgreement(k=3))
    )
    assert top != some


def test_without_labels_there_is_no_accuracy(subject: Subject) -> None:
    unlabelled = replace(
        subject, samples=replace(subject.samples, targets=None), baseline={"size_bytes": 1.0}
    )
    metrics = measure(subject.model, unlabelled, DEVICE).metrics
    assert set(metrics) == {
        *("accuracy_loss", "accuracy_loss_low", "accuracy_loss_high", "divergence"),
        *("size_bytes", "size_ratio"),
        *("latency_ms", "latency_p10_ms", "latency_p90_ms"),
        *LOADING,
    }


def test_metrics_are_plain_numbers(subject: Subject) -> None:
    metrics = measure(subject.model, subject, DEVICE).metrics
    assert all(type(value) is float for value in metrics.values())
    assert 0 < metrics["latency_p10_ms"] <= metrics["latency_ms"] <= metrics["latency_p90_ms"]
    assert metrics["load_ms"] > 0
    # So small a model may fit into memory that the process holds already.
    assert all(0 <= metrics[name] < math.inf for name in LOADING)


def test_loading_is_measured_even_where_nothing_has_to_run(subject: Subject) -> None:
    device = WatchedDevice()
    metrics = measure(subject.model, subject, device, subject.reference).metrics
    assert metrics["load_ms"] > 0
    # So small a model may fit into memory that the process holds already.
    assert all(0 <= metrics[name] < math.inf for name in LOADING)
    assert (device.opened, device.closed) == (1, 1), "it is loaded once"


def test_what_the_system_does_not_tell_is_not_measured(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqto.devices.loading._CLEAR_REFS", Path("no-such-folder/clear_refs"))
    metrics = measure(subject.model, subject, DEVICE).metrics
    assert metrics["load_ms"] > 0 and "load_peak_bytes" not in metrics


def test_a_device_need_not_tell_what_loading_takes(subject: Subject) -> None:
    device = Untold()
    assert not isinstance(device, MeasuresLoading)
    metrics = measure(subject.model, subject, device).metrics
    assert metrics["latency_ms"] > 0 and not {"load_ms", "load_peak_bytes"} & metrics.keys()


class Untold:
    """A device as short as can be."""

    name = "untold"
    load, describe, kernels = DEVICE.load, DEVICE.describe, DEVICE.kernels


@pytest.mark.parametrize("batch", [1, 7, 40, 1000])
def test_all_samples_are_run_in_order_whatever_the_batch(
    prepared: Prepared, subject: Subject, batch: int
) -> None:
    model, watched = prepared.model, subject.observed
    outputs = run_all(DEVICE.load(model), model, subject.samples, batch, watched)
    np.testing.assert_allclose(outputs["y"], subject.reference["y"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("operation", ["Sqrt", "Exp"])
def test_a_single_output_that_is_not_finite_is_an_error(operation: str) -> None:
    model = prepare(unsteady(operation))
    rows = np.zeros((4, 6), np.float32)

    def outputs() -> Outputs:
        samples = Samples({"x": rows}, tuple("abcd"))
        return run_all(DEVICE.load(model), model, samples, 2, observed(model))

    outputs()
    rows[3] = 1000 * np.random.RandomState(0).randn(6)
    with pytest.raises(DeviceError, match="'y' is not finite"):
        outputs()


def test_outputs_of_another_rank_than_the_float_models_are_an_error(subject: Subject) -> None:
    other = replace(subject, reference={"y": subject.reference["y"][..., None]})
    with pytest.raises(DeviceError, match=r"'y' has entries of shape \[10\] .* \[10, 1\]"):
        measure(subject.model, other, DEVICE)


def test_outputs_that_are_not_the_models_own_are_made_again(subject: Subject) -> None:
    wrong = {"y": subject.reference["y"] + 1}
    found = measure(subject.model, subject, DEVICE, wrong)
    assert found.metrics["divergence"] == pytest.approx(0, abs=1e-9)
    # Those of the float model are known to be.
    doubled = replace(subject, reference=wrong)
    assert measure(subject.model, doubled, DEVICE, wrong).metrics["accuracy_loss"] == 0


def test_a_program_is_closed_whatever_happens(subject: Subject) -> None:
    device = WatchedDevice()
    measure(subject.model, subject, device)
    broken = replace(subject, samples=Samples({"wrong": np.zeros((1, 1))}, ("a",)))
    with pytest.raises(DeviceError):
        measure(subject.model, broken, device)
    assert device.closed == 2


class WatchedDevice(OnnxRuntimeDevice):
    """The CPU, counting the programs that were closed."""

    opened = closed = 0

    def load(self, model: Model):  # type: ignore[no-untyped-def]
        """Return a program that tells when it is closed."""
        self.opened += 1
        program = super().load(model)
        close = program.close

        def counted() -> None:
            self.closed += 1
            close()

        program.close = counted  # type: ignore[method-assign]
        return program


@pytest.mark.parametrize(("keep", "found"), [(True, []), (False, ["left"])])
def test_layers_left_in_float_in_vain_are_found(keep: bool, found: list[str]) -> None:
    floating = prepare(residual())
    prepared = Prepared(StaticQuantizer(keep_float=keep), floating, random_samples(floating))
    candidate = Candidate.excluding(prepared.names, ["left"])
    assert undone(candidate, prepared.excluding("left"), OnnxRuntimeDevice()) == found

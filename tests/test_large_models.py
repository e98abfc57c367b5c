"""Models too large for one ONNX file: all that is done with small ones, to the same bits.

The limit is lowered, so that a model of a few kilobytes is a large one.
"""

import hashlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import mlflow
import numpy as np
import onnx
import onnxruntime
import pytest
from commands import Command
from mlflow.tracking import MlflowClient
from onnx_models import conv_bn_relu, feeds, matmul_add, observed, old_model, residual
from quantizable_models import mobile
from suite_quantizers import tried
from tiny_studies import Lab, chain

from seqto.devices.onnxruntime import OnnxRuntimeDevice
from seqto.errors import ModelError
from seqto.graph.files import attach, save_model, stripped
from seqto.graph.load import load_model
from seqto.graph.prepare import prepare
from seqto.graph.unpacking import unpacked
from seqto.graph.weights import at_opset
from seqto.protocols import Quantizer
from seqto.quantizers.dynamic import DynamicQuantizer
from seqto.quantizers.static import StaticQuantizer
from seqto.quantizers.weight_only import WeightOnlyQuantizer
from seqto.sensitivity.divergence import DivergenceSensitivity
from seqto.sensitivity.paper import PaperSensitivity
from seqto.tasks.classification import Classification
from seqto.tracking.memory import MemoryTracker
from seqto.tracking.mlflow import MlflowTracker
from seqto.types import Candidate, Model, Samples, Trial, storage

MODELS = pytest.mark.parametrize(
    "make", [conv_bn_relu, residual, old_model, matmul_add, mobile, chain]
)
QUANTIZERS = pytest.mark.parametrize(
    "quantizer",
    [
        StaticQuantizer(),
        StaticQuantizer(calibration="entropy"),
        StaticQuantizer(activation_type="uint16"),
        DynamicQuantizer(),
        WeightOnlyQuantizer(),
    ],
    ids=["static", "entropy", "uint16", "dynamic", "weight_only"],
)


@pytest.fixture(params=[10_000, 100])
def lower(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return what lowers the limit: so that quantized models are still small, or that none is."""
    return lambda: monkeypatch.setattr(storage, "LIMIT", request.param)


def content(model: Model) -> bytes:
    return b"".join(model.chunks())


def samples(model: Model, count: int = 3) -> Samples:
    return Samples(feeds(model, count), tuple(map(str, range(count))))


def outputs(model: Model) -> list[np.ndarray]:
    program = OnnxRuntimeDevice().load(model)
    return program.run(feeds(model))


@MODELS
def test_content_size_and_digest_are_those_of_one_file(make, lower) -> None:
    model = Model("any", make().proto, {"session.some": "1"})
    wanted = model.to_bytes(), model.size, model.digest
    lower()
    large = Model("any", model.proto, model.session)
    assert (content(large), large.size, large.digest) == wanted
    assert hashlib.sha256(wanted[0] + b'{"session.some": "1"}').hexdigest() == large.digest


def test_bytes_of_a_large_model_are_refused(lower) -> None:
    lower()
    assert chain().is_large
    with pytest.raises(ModelError, match=r"Model chain is too large for one ONNX file"):
        chain().to_bytes()


@MODELS
def test_weights_come_back_to_the_graph(make, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make()
    wanted = model.to_bytes()
    monkeypatch.setattr(storage, "LIMIT", 100)
    light, weights = stripped(model.proto)
    assert all(storage.stored_bytes(each) >= 1024 for each in weights.values())
    assert len(light.SerializeToString()) < len(wanted) or not weights
    assert content(Model("any", attach(light, weights))) == wanted
    assert content(model) == wanted


@MODELS
def test_saved_model_is_one_for_onnx_and_onnxruntime(make, lower, tmp_path: Path) -> None:
    model = make()
    wanted, before = outputs(model), model.to_bytes()
    lower()
    path = tmp_path / "made" / "model.onnx"
    save_model(model, path)
    onnx.checker.check_model(path)
    assert content(load_model(path, "any")) == before
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for one, other in zip(session.run(None, feeds(model)), wanted, strict=True):
        np.testing.assert_array_equal(one, other)
    files = {each.name for each in path.parent.iterdir()}
    assert files <= {"model.onnx", "model.onnx.data"}
    assert content(model) == before


def test_large_model_is_two_files_and_a_small_one_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_model(chain(), tmp_path / "small.onnx")
    assert (tmp_path / "small.onnx").read_bytes() == chain().to_bytes()
    monkeypatch.setattr(storage, "LIMIT", 10_000)
    save_model(chain(), tmp_path / "large.onnx")
    names = sorted(each.name for each in tmp_path.iterdir())
    assert names == ["large.onnx", "large.onnx.data", "small.onnx"]


def test_values_that_are_not_raw_are_written_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proto = chain().copy_proto()
    for each in proto.graph.initializer:
        values = onnx.numpy_helper.to_array(each)
        each.ClearField("raw_data")
        each.float_data.extend(values.ravel().tolist())
    monkeypatch.setattr(storage, "LIMIT", 100)
    wanted, found = outputs(chain()), outputs(Model("any", proto))
    np.testing.assert_array_equal(found[0], wanted[0])
    save_model(Model("any", proto), tmp_path / "model.onnx")
    loaded = load_model(tmp_path / "model.onnx", "chain")
    for one, other in zip(loaded.proto.graph.initializer, proto.graph.initializer, strict=True):
        np.testing.assert_array_equal(*map(onnx.numpy_helper.to_array, (one, other)))


@MODELS
def test_prepared_the_same(make, lower) -> None:
    model = make()
    wanted, given = prepare(model).to_bytes(), model.to_bytes()
    lower()
    assert content(prepare(model)) == wanted
    assert content(model) == given


def test_what_cannot_be_prepared_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = chain().copy_proto()
    broken.graph.node[0].op_type = "NoSuchOperation"
    monkeypatch.setattr(storage, "LIMIT", 100)
    with pytest.raises(ModelError, match="Model any cannot be prepared.*NoSuchOperation"):
        prepare(Model("any", broken))


@MODELS
def test_converted_and_run_the_same(make, lower) -> None:
    prepared = prepare(make())
    raised, wanted = at_opset(prepared, 21).to_bytes(), outputs(prepared)
    kernels = OnnxRuntimeDevice().kernels(prepared)
    lower()
    assert content(at_opset(prepared, 21)) == raised
    for one, other in zip(outputs(prepared), wanted, strict=True):
        np.testing.assert_array_equal(one, other)
    assert OnnxRuntimeDevice().kernels(prepared) == kernels
    program, loading = OnnxRuntimeDevice().load_measured(prepared)
    for one, other in zip(program.run(feeds(prepared)), wanted, strict=True):
        np.testing.assert_array_equal(one, other)
    assert loading is not None and loading.ms > 0


@QUANTIZERS
@pytest.mark.parametrize("make", [residual, chain, mobile])
def test_quantized_the_same(make, quantizer: Quantizer, lower) -> None:
    wanted = list(_quantized(make(), quantizer))
    lower()
    found = list(_quantized(make(), quantizer))
    for one, other in zip(found, wanted, strict=True):
        assert one == other


def _quantized(model: Model, quantizer: Quantizer) -> Iterator[object]:
    """Yield what comes out of each step, for candidates in all precisions."""
    prepared, layers = quantizer.prepare(prepare(model))
    yield content(prepared)
    ranges = quantizer.calibrate(prepared, samples(prepared))
    yield ranges
    names = [layer.name for layer in layers]
    candidates = [Candidate.excluding(names, names[:1])]
    for precision in tried(quantizer):
        candidates.append(Candidate.of(dict.fromkeys(names, precision)))
    for candidate in candidates:
        quantized = quantizer.quantize(prepared, ranges, candidate)
        yield content(quantized)
        yield [each.tolist() for each in outputs(quantized)]
        yield content(unpacked(quantized))
    yield content(prepared)


@pytest.mark.parametrize("sensitivity", [PaperSensitivity(samples=2), DivergenceSensitivity()])
def test_layers_are_ranked_the_same(sensitivity, lower) -> None:
    def ranked() -> object:
        quantizer = StaticQuantizer()
        model, layers = quantizer.prepare(prepare(chain()))
        calibration = samples(model)
        ranges = quantizer.calibrate(model, calibration)
        watched, task = observed(model), Classification()
        return sensitivity.score(model, layers, quantizer, ranges, calibration, watched, task)

    wanted = ranked()
    lower()
    assert ranked() == wanted


def test_study_is_the_same(lower, tmp_path: Path) -> None:
    trackers = MemoryTracker(), MemoryTracker()
    wanted = Lab.at(tmp_path / "small").run(trackers[0])
    lower()
    found = Lab.at(tmp_path / "large").run(trackers[1])
    assert {each.name for each in (tmp_path / "large").iterdir()} >= {"chain.onnx.data"}
    assert [_facts(each) for each in found.front.members] == [
        _facts(each) for each in wanted.front.members
    ]
    assert trackers[1].models.keys() == trackers[0].models.keys()
    assert trackers[1].models == trackers[0].models


def _facts(trial: Trial) -> object:
    metrics = {
        name: value
        for name, value in trial.metrics.items()
        if not name.startswith(("latency", "load"))
    }
    return trial.candidate, trial.model_sha256, metrics


def test_study_in_mlflow_logs_models_that_can_be_served(
    lower, tmp_path: Path, migrated_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = Lab.at(tmp_path / "small").run(MemoryTracker())
    lower()
    shutil.copy(migrated_store, tmp_path / "mlflow.db")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEQTO_CACHE", str(tmp_path / "cache"))
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    lab = Lab.at(tmp_path / "large")
    found = lab.run(MlflowTracker(uri=uri))
    assert [_facts(each) for each in found.front.members] == [
        _facts(each) for each in wanted.front.members
    ]
    mlflow.set_tracking_uri(uri)
    try:
        for trial in found.front.members:
            _require_served(lab, trial, MlflowClient(uri))
    finally:
        mlflow.set_tracking_uri(None)


def _require_served(lab: Lab, trial: Trial, client: MlflowClient) -> None:
    """Fail where the model that was logged is another than that of the trial, or is not served."""
    model = lab.parts.quantizer.quantize(lab.subject.model, lab.subject.ranges, trial.candidate)
    address = client.get_run(trial.id).data.tags["seqto.model_uri"]
    folder = Path(mlflow.artifacts.download_artifacts(address))
    assert len(list(folder.rglob("*.data"))) == model.is_large
    inputs = dict(lab.subject.example)
    expected = OnnxRuntimeDevice().load(model).run(inputs)[0]
    served = mlflow.pyfunc.load_model(address).predict(inputs)
    np.testing.assert_array_equal(next(iter(served.values())), expected)
    logged = mlflow.onnx.load_model(address)
    values = [onnx.numpy_helper.to_array(each).tolist() for each in logged.graph.initializer]
    given = [onnx.numpy_helper.to_array(each).tolist() for each in model.proto.graph.initializer]
    assert values == given


def test_single_candidate_is_saved_in_two_files(seqto: Command, lower, tmp_path: Path) -> None:
    assert seqto("candidate.excluded=[]").code == 0
    (small,) = tmp_path.rglob("digits-static-*.onnx")
    wanted = load_model(small, "digits")
    small.unlink()
    lower()
    assert seqto("candidate.excluded=[]").code == 0
    (graph,) = tmp_path.rglob("digits-static-*.onnx")
    assert graph.with_name(f"{graph.name}.data").exists()
    onnx.checker.check_model(graph)
    for one, other in zip(
        load_model(graph, "digits").proto.graph.initializer,
        wanted.proto.graph.initializer,
        strict=True,
    ):
        np.testing.assert_array_equal(*map(onnx.numpy_helper.to_array, (one, other)))

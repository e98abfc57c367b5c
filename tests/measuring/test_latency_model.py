"""Predictions of latency: assembled from real profiles, and fitted to mixes."""

import itertools
import json
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from tiny_studies import Lab, ProbedDevice

from seqto.devices.onnxruntime import OnnxRuntimeDevice
from seqto.graph.quantized import quantized_nodes
from seqto.measuring import latency_model, turns
from seqto.measuring.latency_model import find_latency_model, fitted
from seqto.quantizers.dynamic import DynamicQuantizer
from seqto.quantizers.weight_only import WeightOnlyQuantizer
from seqto.types import (
    CODED_STEPS,
    FLOAT32,
    INT8,
    Candidate,
    LatencyModel,
    Model,
    Passage,
    Rates,
    TimedLayer,
    TimedOperation,
)

FULL = ("coded", INT8, FLOAT32)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return Lab.at(tmp_path_factory.mktemp("lab"), device=OnnxRuntimeDevice(repeats=3))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take each model's turn once: these tests do not need exact times."""
    monkeypatch.setattr(turns, "_PATIENCE", 1)


@pytest.fixture
def unsure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accept any error: models of some microseconds are timed badly on a busy machine."""
    monkeypatch.setattr(latency_model, "_USELESS", 1e9)


def modelled(lab: Lab, **left_out: object) -> LatencyModel:
    found = find_latency_model(lab.parts, lab.subject, **left_out)
    assert found is not None
    return found


# By hand


CHAIN = ("a", "b", "c")
EXACT = LatencyModel(
    layers=tuple(TimedLayer(name, {FLOAT32: 2.0, INT8: 1.0}, (INT8,)) for name in CHAIN),
    operations=(TimedOperation("add", 0.5, 0.25, before=("a", "b"), after=("c",)),),
    passages=(
        Passage("a", ("b", "add"), 1000),
        Passage("b", ("add",), 1000),
        Passage("add", ("c",), 2000),
    ),
    rates=Rates(1e-4, 2e-4, 0.01),
    fixed_ms=0.125,
)


def mix(*integers: str) -> Candidate:
    return Candidate.of({name: INT8 if name in integers else FLOAT32 for name in CHAIN})


@pytest.mark.parametrize(
    ("integers", "layers", "conversions"),
    [
        ("", 6.5, 0.0),
        ("abc", 3.25, 0.0),
        # The addition follows any layer beside it: it reads integers of a, and floats of b.
        ("a", 5.25, 2 * 0.01 + 1000 * (2e-4 + 1e-4) + 2000 * 2e-4 + 0.01),
        # a and b make floats that become integers for the addition.
        ("c", 5.25, 2 * (0.01 + 1000 * 1e-4)),
        ("ab", 4.25, 0.01 + 2000 * 2e-4),
    ],
)
def test_time_is_that_of_layers_and_of_conversions(
    integers: str, layers: float, conversions: float
) -> None:
    spent = EXACT.spent(dict(mix(*integers).precisions))
    assert spent.layers_ms == pytest.approx(layers + 0.125)
    assert spent.conversions_ms == pytest.approx(conversions)
    assert EXACT.predict(mix(*integers)) == pytest.approx(spent.total_ms)


def test_what_never_runs_on_integers_converts_nothing_by_itself() -> None:
    (add,) = EXACT.operations
    stubborn = replace(EXACT, operations=(replace(add, integer_ms=None),), passages=())
    assert stubborn.on_integers(dict(mix(*CHAIN).precisions)) == {*CHAIN}
    assert stubborn.predict(mix(*CHAIN)) == pytest.approx(3 + 0.5 + 0.125)


def test_documents_hold_all_of_it() -> None:
    document = json.loads(json.dumps(EXACT.as_document()))
    assert LatencyModel.from_document(document) == EXACT


def test_predictions_are_shares_of_the_float_models_latency() -> None:
    found = EXACT.anchored(2 * EXACT.float_ms)
    assert EXACT.float_ms == EXACT.predict(mix())
    for each in (mix(), mix("a"), mix("c"), mix(*CHAIN)):
        before, now = (model.spent(dict(each.precisions)) for model in (EXACT, found))
        assert now.layers_ms == pytest.approx(2 * before.layers_ms)
        assert now.conversions_ms == pytest.approx(2 * before.conversions_ms)
    assert EXACT.anchored(None) == EXACT


def test_rates_are_found_again() -> None:
    mixes = [mix(*each) for count in (1, 2) for each in itertools.combinations(CHAIN, count)]
    bare = replace(EXACT, rates=Rates())
    found = fitted(bare, mixes, [EXACT.predict(each) for each in mixes])
    assert found.error < 1e-6
    assert found.rates.quantize == pytest.approx(1e-4, rel=1e-3)
    assert found.rates.dequantize == pytest.approx(2e-4, rel=1e-3)


def test_the_error_is_that_of_mixes_that_were_left_out() -> None:
    mixes = [mix("a"), mix("b"), mix("c"), mix("a", "b")]
    draw = np.random.RandomState(0)
    off = [EXACT.predict(each) * (1 + 0.2 * draw.randn()) for each in mixes]
    assert 0.02 < fitted(replace(EXACT, rates=Rates()), mixes, off).error < 0.6


# On real profiles


@pytest.mark.usefixtures("unsure")
def test_layers_have_their_times_in_each_precision(lab: Lab) -> None:
    found = modelled(lab.with_parts(precisions=FULL))
    assert [each.name for each in found.layers] == lab.subject.layer_names
    for layer in found.layers:
        assert layer.integers == (INT8,)
        # Stored precisions run as float.
        assert {layer.ms[step] for step in CODED_STEPS} == {layer.ms[FLOAT32]}
        assert layer.ms[FLOAT32] > 0 and layer.ms[INT8] > 0
    # Clamps run as a part of the layers before them.
    assert all(each.integer_ms is not None for each in found.operations)
    assert {each.maker for each in found.passages} >= {"conv0", "conv0_relu"}


@pytest.mark.usefixtures("unsure")
def test_layers_that_cannot_be_quantized_have_one_time(lab: Lab) -> None:
    found = modelled(lab, left_out={"fc"})
    (layer,) = (each for each in found.layers if each.name == "fc")
    assert set(layer.ms) == {FLOAT32} and layer.integers == ()


@pytest.mark.usefixtures("unsure")
def test_dynamic_layers_have_times_and_boundaries_of_layout(tmp_path: Path) -> None:
    dynamic = Lab.at(tmp_path, device=OnnxRuntimeDevice(repeats=3), quantizer=DynamicQuantizer())
    found = modelled(dynamic)
    assert all(layer.integers == (INT8,) for layer in found.layers)
    assert all(layer.ms[INT8] != layer.ms[FLOAT32] for layer in found.layers)
    # A Relu is a part of a float layer, and runs by itself behind one on integers.
    relu = next(each for each in found.operations if each.name == "conv1_relu")
    assert relu.float_ms == 0 < (relu.integer_ms or 0)


@pytest.mark.usefixtures("unsure")
def test_what_is_only_stored_is_as_fast_as_float(tmp_path: Path) -> None:
    stored = Lab.at(tmp_path, device=OnnxRuntimeDevice(repeats=3), quantizer=WeightOnlyQuantizer())
    found = modelled(stored)
    assert all(layer.ms[INT8] == layer.ms[FLOAT32] for layer in found.layers)


@dataclass
class ByLayers(ProbedDevice):
    """A device without a profile, on which a float layer takes 2 ms and an int8 one takes 1 ms."""

    noise: dict[int, float] = field(default_factory=dict, compare=False)

    def latency(self, model: Model) -> float | None:
        """Return what the model takes, in milliseconds."""
        quantized = len(quantized_nodes(model))
        return self.noise.get(quantized, 1.0) * (2.0 * 6 - quantized)


def test_a_device_without_a_profile_is_timed_as_a_whole(lab: Lab) -> None:
    found = modelled(lab.with_parts(device=ByLayers()))
    for precision, ms in ((FLOAT32, 12.0), (INT8, 6.0)):
        every = Candidate.of(dict.fromkeys(lab.subject.layer_names, precision))
        assert found.predict(every) == pytest.approx(ms)


def test_where_mixes_cannot_be_predicted_there_is_no_prediction(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    wild = ByLayers(noise={1: 0.1, 2: 9.0, 3: 0.1, 4: 8.0, 5: 0.1})
    parts = replace(lab.parts, device=wild)
    assert find_latency_model(parts, lab.subject) is None
    assert "off by" in caplog.text

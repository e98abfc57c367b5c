"""Ranges are those of ONNX Runtime's MinMax calibrator."""

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper
from onnx_models import build, old_model, residual, weight
from quantizable_models import attention, mobile, random_samples, two_outputs

from seqto.graph.prepare import prepare
from seqto.quantizers import ranges, static
from seqto.quantizers.static import StaticQuantizer
from seqto.types import Model, Ranges, Samples


def both(model: Model, samples: Samples, **options: Any) -> tuple[Ranges, Ranges]:
    """Return our ranges and those of ORT's calibrator."""
    ours = StaticQuantizer(**options)
    # What the option says is what holds without it, but it makes ORT calibrate.
    theirs = StaticQuantizer(**options, extra_options={"CalibMovingAverage": False})
    return ours.calibrate(model, samples), theirs.calibrate(model, samples)


def assert_alike(ours: Ranges, theirs: Ranges) -> None:
    """Compare all that float rounding leaves alike."""
    assert list(ours) == list(theirs)
    for name, wanted in theirs.items():
        # What masks a score is infinite.
        magnitude = max((abs(each) for each in wanted if np.isfinite(each)), default=0)
        np.testing.assert_allclose(ours[name], wanted, rtol=1e-5, atol=1e-5 * magnitude)


def with_constant() -> Model:
    """Return a Conv of a constant, and an Add whose other operand a node computes of constants."""
    nodes = [
        helper.make_node("Constant", [], ["w"], "constant", value=weight("w", 4, 3, 1, 1)),
        helper.make_node("Conv", ["x", "w"], ["a"], "conv"),
        helper.make_node("Neg", ["b"], ["negative"], "neg"),
        helper.make_node("Add", ["a", "negative"], ["s"], "add"),
        helper.make_node("Conv", ["s", "v"], ["y"], "last"),
    ]
    weights = [weight("b", 4, 1, 1), weight("v", 4, 4, 1, 1)]
    shape = ["N", 4, 8, 8]
    return build(nodes, weights, {"x": ["N", 3, 8, 8]}, {"y": shape}, name="with_constant")


def gated(operation: str) -> Model:
    """Return a Conv of what `operation` makes of the input, where that is a number."""
    nodes = [
        helper.make_node(operation, ["x"], ["r"], "operation"),
        helper.make_node("Identity", ["r"], ["same"], "same"),
        helper.make_node("IsNaN", ["same"], ["unknown"], "is_nan"),
        helper.make_node("Where", ["unknown", "zero", "same"], ["known"], "where"),
        helper.make_node("Conv", ["known", "w"], ["y"], "conv"),
    ]
    weights = [numpy_helper.from_array(np.float32(0), "zero"), weight("w", 4, 3, 1, 1)]
    return build(nodes, weights, {"x": ["N", 3, 2, 2]}, {"y": ["N", 4, 2, 2]}, name="gated")


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize(
    "floating",
    [residual, mobile, two_outputs, attention, old_model],
    ids=lambda each: each.__name__,
)
def test_ranges_are_those_of_onnxruntime(floating: Any, symmetric: bool) -> None:
    model = StaticQuantizer().prepare(prepare(floating()))[0]
    samples = random_samples(model)
    if floating is attention:
        # Of several tokens, one of which is masked.
        tokens = np.random.RandomState(0).randn(4, 3, 16).astype(np.float32)
        mask = np.array([[1, 1, 0]] * 4, np.float32)
        samples = Samples({"x": tokens, "mask": mask}, tuple("abcd"))
    ours, theirs = both(model, samples, activation_symmetric=symmetric)
    assert len(ours) > 1
    assert_alike(ours, theirs)


@pytest.mark.parametrize("symmetric", [False, True])
def test_constants_of_nodes_have_ranges(symmetric: bool) -> None:
    # Not prepared: that would make initializers of them.
    model = StaticQuantizer().prepare(with_constant())[0]
    ours, theirs = both(model, random_samples(model), activation_symmetric=symmetric)
    assert {"x", "w", "a", "negative", "s", "y"} == set(ours)
    assert_alike(ours, theirs)


@pytest.mark.parametrize("op_types", [["Conv"], ["Gemm"], ["Gemm", "Add"]])
def test_only_tensors_around_the_operations_have_ranges(op_types: list[str]) -> None:
    model = StaticQuantizer().prepare(prepare(residual()))[0]
    ours, theirs = both(model, random_samples(model), op_types=op_types)
    assert "s" in ours or "Conv" not in op_types
    assert_alike(ours, theirs)


def test_half_precision() -> None:
    model = residual()
    for value in (*model.proto.graph.input, *model.proto.graph.output):
        value.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(np.float16))
    for tensor in model.proto.graph.initializer:
        half = numpy_helper.to_array(tensor).astype(np.float16)
        tensor.CopyFrom(numpy_helper.from_array(half, tensor.name))
    model = StaticQuantizer().prepare(model)[0]
    pixels = np.random.RandomState(0).randn(3, 3, 8, 8).astype(np.float16)
    ours, theirs = both(model, Samples({"x": pixels}, tuple("abc")))
    assert list(ours) == list(theirs)
    for name, wanted in theirs.items():
        # Three decimal digits is what these numbers have.
        assert ours[name] == pytest.approx(wanted, rel=0.01, abs=0.01 * np.abs(wanted).max())


@pytest.mark.filterwarnings("ignore:All-NaN:RuntimeWarning")
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("sample", [0, 1, 2])
def test_nan_counts_where_it_comes_first(sample: int, first: bool, symmetric: bool) -> None:
    model = StaticQuantizer().prepare(gated("Sqrt"))[0]
    pixels = np.random.RandomState(0).uniform(1, 4, (3, 3, 2, 2)).astype(np.float32)
    pixels[sample, 0, 0, 0 if first else 1] = -2
    options: dict[str, Any] = {"op_types": ["Sqrt", "Conv"], "activation_symmetric": symmetric}
    ours, theirs = both(model, Samples({"x": pixels}, tuple("abc")), **options)
    assert list(ours) == list(theirs)
    np.testing.assert_allclose(list(ours.values()), list(theirs.values()), rtol=1e-5)
    assert np.isnan(ours["r"]).tolist() == [first and sample == 0] * 2


def test_infinite_values_are_infinite_ranges() -> None:
    model = StaticQuantizer().prepare(gated("Exp"))[0]
    pixels = np.ones((2, 3, 2, 2), np.float32)
    pixels[1, 0, 0, 1] = 1000
    ours, theirs = both(model, Samples({"x": pixels}, ("a", "b")), op_types=["Exp", "Conv"])
    assert ours["r"][1] == theirs["r"][1] == np.inf
    assert ours["r"][0] == pytest.approx(theirs["r"][0])


def test_tensors_without_values_have_no_range() -> None:
    assert ranges._extremes(np.zeros((1, 0, 4), np.float32)) == (np.inf, -np.inf)


def test_no_samples_are_no_ranges() -> None:
    model = StaticQuantizer().prepare(prepare(residual()))[0]
    none = Samples({"x": np.zeros((0, 3, 8, 8), np.float32)}, ())
    assert StaticQuantizer().calibrate(model, none) == {}


@pytest.mark.parametrize(
    "options",
    [
        {"calibration": "percentile"},
        {"calibration": "entropy"},
        *(
            {"extra_options": {name: value}}
            for name, value in {
                "CalibTensorRangeSymmetric": True,
                "CalibMovingAverage": True,
                "CalibMovingAverageConstant": 0.1,
            }.items()
        ),
    ],
    ids=str,
)
def test_other_calibrations_are_left_to_onnxruntime(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(static, "minmax_ranges")
    model = StaticQuantizer().prepare(prepare(residual()))[0]
    assert StaticQuantizer(**options).calibrate(model, random_samples(model))
    with pytest.raises(NameError, match="minmax_ranges"):
        StaticQuantizer().calibrate(model, random_samples(model))

"""A model that cannot be studied is refused with the reason and a remedy."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import residual
from refused_models import branched, half, in_a_list, named_classes, quantized
from stateful_models import shaped

from seqto.errors import ModelError
from seqto.graph.constants import with_constants
from seqto.graph.prepare import prepare
from seqto.graph.reasons import require_numbers
from seqto.protocols import Quantizer
from seqto.quantizers.auto import AutoQuantizer
from seqto.quantizers.dynamic import DynamicQuantizer
from seqto.quantizers.static import StaticQuantizer
from seqto.quantizers.weight_only import WeightOnlyQuantizer
from seqto.types import Model

EACH = pytest.mark.parametrize(
    "quantizer", [AutoQuantizer, StaticQuantizer, DynamicQuantizer, WeightOnlyQuantizer]
)


def refusal(model: Model, quantizer: Quantizer) -> str:
    """Return the one line with which the model is refused."""
    with pytest.raises(ModelError) as caught:
        quantizer.prepare(prepare(model))
    message = str(caught.value)
    assert "\n" not in message
    return message.removeprefix(f"model {model.name!r} has no layer to quantize: ")


@EACH
def test_float16(quantizer: type) -> None:
    expected = "its 4 layers are float16 already. Export it in float32."
    assert refusal(half(), quantizer()) == expected


@EACH
def test_float64(quantizer: type) -> None:
    values = numpy_helper.from_array(np.ones((6, 4)), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], "fc")]
    types = {"x": TensorProto.DOUBLE, "y": TensorProto.DOUBLE}
    model = shaped({"x": ["N", 6]}, {"y": ["N", 4]}, types, nodes)
    model.proto.graph.initializer.append(values)
    expected = "its only layer is float64, which cannot be quantized. Export it in float32."
    assert refusal(model, quantizer()) == expected


@EACH
@pytest.mark.parametrize(
    ("made_by", "operations"),
    [
        (StaticQuantizer, "DequantizeLinear, QuantizeLinear"),
        (DynamicQuantizer, "ConvInteger, DynamicQuantizeLinear, MatMulInteger"),
    ],
)
def test_quantized_already(quantizer: type, made_by: type, operations: str) -> None:
    assert refusal(quantized(made_by()), quantizer()) == (
        f"it is quantized already (it has {operations}). Give the float model that it was made of."
    )


@EACH
@pytest.mark.parametrize("nested", [False, True])
def test_layers_inside_branches(quantizer: type, nested: bool) -> None:
    assert refusal(branched(nested=nested), quantizer()) == (
        "its 2 layers are inside the branches of If, which cannot be quantized. "
        "Export it without control flow."
    )


def test_an_input_that_decides_on_branches_is_named() -> None:
    # As Optimum merges a decoder with and without its cache.
    model = branched()
    graph = model.proto.graph
    flag = helper.make_tensor_value_info("use_cache_branch", TensorProto.BOOL, [1])
    graph.input.append(flag)
    (chosen,) = (node for node in graph.node if node.op_type == "If")
    chosen.input[0] = "decided"
    graph.node.insert(0, helper.make_node("Squeeze", [flag.name], ["decided"], name="squeeze"))
    assert refusal(model, StaticQuantizer()).endswith(
        "cannot be quantized. Choose a branch by fixing what decides on it, "
        "'dataset.constants={use_cache_branch: [false]}', or export it without control flow."
    )
    prepared = prepare(with_constants(model, {flag.name: [False]}))
    _, layers = StaticQuantizer().prepare(prepared)
    assert [each.name for each in layers] == ["outer_fc"]


def test_operations_that_were_not_asked_for_are_no_reason() -> None:
    message = refusal(residual(), StaticQuantizer(op_types=["ConvTranspose"]))
    assert message.startswith("none of its nodes is one of ConvTranspose")


def test_the_reason_comes_before_names_to_exclude() -> None:
    assert "float16" in refusal(half(), StaticQuantizer(exclude=["stem"]))


def test_text_as_first_output() -> None:
    with pytest.raises(ModelError) as caught:
        prepare(named_classes())
    assert str(caught.value) == (
        "model 'named_classes' cannot be compared with its candidates: its first output 'label' is "
        "made of strings. Export it with numbers as its first output, 'scores' for example."
    )


def test_sequence_as_only_output() -> None:
    with pytest.raises(ModelError, match="'list' is made of sequences.*as its first output.$"):
        prepare(in_a_list())


def test_numbers_first_are_enough() -> None:
    model = named_classes()
    label, scores = model.proto.graph.output
    del model.proto.graph.output[:]
    model.proto.graph.output.extend([scores, label])
    require_numbers(model)

"""Tables that are also the weight of a MatMul, transposed."""

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_models import build, op_types, run, weight
from sequence_models import LENGTH, WIDTH, WORDS, constant, texts, with_words
from suite_quantizers import Prepared, tried

from seqto.graph.groups import run_as_one
from seqto.graph.prepare import prepare
from seqto.protocols import Quantizer
from seqto.quantizers.dynamic import DynamicQuantizer
from seqto.quantizers.static import StaticQuantizer
from seqto.quantizers.weight_only import WeightOnlyQuantizer
from seqto.types import CODED_STEPS, INT8, Model

QUANTIZERS = [StaticQuantizer, DynamicQuantizer, WeightOnlyQuantizer]


def language_model(*, folded: bool = False) -> Model:
    """Return a model of the next word of each, with a Transpose of its table or its result."""
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["e"], "embed"),
        helper.make_node("MatMul", ["e", "mix_w"], ["m"], "mix"),
        helper.make_node("Relu", ["m"], ["r"], "relu"),
        helper.make_node("Transpose", ["table"], ["turned"], "turn", perm=[1, 0]),
        helper.make_node("MatMul", ["r", "turned"], ["y"], "head"),
    ]
    weights = [weight("table", WORDS, WIDTH), weight("mix_w", WIDTH, WIDTH)]
    if folded:
        del nodes[3]
        values = np.ascontiguousarray(onnx.numpy_helper.to_array(weights[0]).T)
        weights.append(onnx.numpy_helper.from_array(values, "turned"))
    model = build(nodes, weights, {"ids": ["N", "S"]}, {"y": ["N", "S", WORDS]}, name="language")
    return with_words(model, "ids")


def words(model: Model) -> dict[str, np.ndarray]:
    draw = np.random.RandomState(0)
    return {"ids": draw.randint(0, WORDS, (3, LENGTH)).astype(np.int64)}


def test_the_table_is_in_the_prepared_file_once() -> None:
    given = language_model()
    found = prepare(given)
    assert found.size < given.size + 1500
    assert "turned" not in {each.name for each in found.proto.graph.initializer}
    for optimized in (False, True):
        np.testing.assert_allclose(
            run(found, words(found), optimized=optimized)[0],
            run(given, words(given))[0],
            rtol=1e-5,
            atol=1e-5,
        )


def test_copies_of_the_users_own_stay() -> None:
    found = prepare(language_model(folded=True))
    assert {"table", "turned"} <= {each.name for each in found.proto.graph.initializer}
    assert "Gemm" not in op_types(found)


def test_another_transposed_weight_is_no_table() -> None:
    model = language_model()
    # The table is read by its Transpose alone.
    model.proto.graph.node[0].input[0] = "other"
    model.proto.graph.initializer.append(weight("other", WORDS, WIDTH))
    found = prepare(model)
    assert "Gemm" not in op_types(found)
    np.testing.assert_array_equal(constant(found, "turned"), constant(model, "table").T)


@pytest.mark.parametrize("quantizer", QUANTIZERS)
def test_lookup_and_product_go_together_and_are_stored_once(quantizer: type[Quantizer]) -> None:
    floating = prepare(language_model())
    samples = texts(floating)
    found = Prepared(quantizer(), floating, samples)
    layers = {each.name: each for each in run_as_one(found.model, found.layers, {})}
    assert list(layers) == ["embed", "mix", "head"]
    assert layers["embed"].unit == layers["head"].unit == "embed"
    wanted = run(floating, found.inputs)[0]
    for precision in tried(found.quantizer):
        quantized = found.mixed(precision)
        sizes = [int(np.prod(each.dims)) for each in quantized.proto.graph.initializer]
        # Coded weights are in common streams: here, the table and that of `mix`.
        coded = op_types(quantized).count("Weight") - 1
        assert (coded if precision in CODED_STEPS else sizes.count(WORDS * WIDTH)) == 1
        for optimized in (False, True):
            outputs = run(quantized, found.inputs, optimized=optimized)[0]
            near = (0.4 if precision in CODED_STEPS else 0.2) * np.abs(wanted).max()
            np.testing.assert_allclose(outputs, wanted, atol=near)
    assert found.mixed(INT8).size < 0.32 * language_model().size

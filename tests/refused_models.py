"""Tiny models that cannot be studied, each for another reason."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx_models import build, residual, weight
from quantizable_models import random_samples
from suite_quantizers import Prepared

from seqto.graph.prepare import prepare
from seqto.protocols import Quantizer
from seqto.types import Model


def half() -> Model:
    """Return the residual model in float16."""
    model = residual()
    graph = model.proto.graph
    for each in graph.initializer:
        values = numpy_helper.to_array(each).astype(np.float16)
        each.CopyFrom(numpy_helper.from_array(values, each.name))
    for value in (*graph.input, *graph.output):
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
    return model


def quantized(quantizer: Quantizer) -> Model:
    """Return the residual model, all its layers quantized."""
    floating = prepare(residual())
    return Prepared(quantizer, floating, random_samples(floating)).excluding()


def branched(*, nested: bool = False) -> Model:
    """Return an If with a Gemm in each of its branches; one weight belongs to the outer graph.

    If it is nested, the If is inside a Loop.
    """
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["total"], "total", keepdims=0),
        helper.make_node("Greater", ["total", "zero"], ["positive"], "positive"),
        helper.make_node(
            "If",
            ["positive"],
            ["chosen"],
            "if",
            then_branch=_branch("inner", with_weight=True),
            else_branch=_branch("outer", with_weight=False),
        ),
    ]
    zero = numpy_helper.from_array(np.float32(0), "zero")
    outer = weight("outer_w", 6, 4)
    if not nested:
        return build(nodes, [zero, outer], {"x": ["N", 6]}, {"chosen": ["N", 4]}, name="branched")
    body = helper.make_graph(
        [*nodes, helper.make_node("Identity", ["go"], ["going"], "go_on")],
        "body",
        [
            helper.make_tensor_value_info("turn", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("before", TensorProto.FLOAT, ["N", 4]),
        ],
        [
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("chosen", TensorProto.FLOAT, ["N", 4]),
        ],
        [zero],
    )
    loop = [
        helper.make_node("Slice", ["x", "from", "to", "axis"], ["start"], "slice"),
        helper.make_node("Loop", ["turns", "", "start"], ["y"], "loop", body=body),
    ]
    numbers = {"turns": np.int64(2), "from": np.int64([0]), "to": np.int64([4])}
    numbers["axis"] = np.int64([1])
    weights = [outer, *(numpy_helper.from_array(np.asarray(v), n) for n, v in numbers.items())]
    return build(loop, weights, {"x": ["N", 6]}, {"y": ["N", 4]}, name="nested")


def _branch(name: str, *, with_weight: bool) -> onnx.GraphProto:
    """Return a graph of a Gemm, whose weight may belong to it."""
    return helper.make_graph(
        [helper.make_node("Gemm", ["x", f"{name}_w"], [f"{name}_y"], f"{name}_fc")],
        name,
        [],
        [helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, ["N", 4])],
        [weight(f"{name}_w", 6, 4)] if with_weight else [],
    )


def detector() -> Model:
    """Return a model with NonMaxSuppression: its output `selected` has a row per box found."""
    nodes = [
        helper.make_node("MatMul", ["x", "boxes_w"], ["boxes"], "boxes"),
        helper.make_node("MatMul", ["x", "scores_w"], ["columns"], "scores"),
        helper.make_node("Transpose", ["columns"], ["scores"], "transpose", perm=[0, 2, 1]),
        helper.make_node(
            "NonMaxSuppression",
            ["boxes", "scores", "most", "overlap", "least"],
            ["selected"],
            "suppress",
        ),
    ]
    weights = [
        *(weight("boxes_w", 4, 4), weight("scores_w", 4, 1)),
        numpy_helper.from_array(np.array([100]), "most"),
        numpy_helper.from_array(np.float32([0.5]), "overlap"),
        numpy_helper.from_array(np.float32([0]), "least"),
    ]
    model = build(nodes, weights, {"x": ["N", 8, 4]}, {"selected": ["found", 3]}, name="detector")
    model.proto.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    return model


def named_classes() -> Model:
    """Return a classifier whose first output is the `label` as text, its second the `scores`."""
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["scores"], "fc"),
        helper.make_node("ArgMax", ["scores"], ["best"], "best", axis=1, keepdims=0),
        helper.make_node("Gather", ["names", "best"], ["label"], "name"),
    ]
    names = helper.make_tensor("names", TensorProto.STRING, [3], [b"cat", b"dog", b"owl"])
    outputs = {"label": ["N"], "scores": ["N", 3]}
    model = build(nodes, [weight("w", 6, 3), names], {"x": ["N", 6]}, outputs, name="named_classes")
    model.proto.graph.output[0].type.tensor_type.elem_type = TensorProto.STRING
    return model


def in_a_list() -> Model:
    """Return a model whose only output is a sequence of tensors."""
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["y"], "fc"),
        helper.make_node("SequenceConstruct", ["y"], ["list"], "list"),
    ]
    model = build(nodes, [weight("w", 6, 3)], {"x": ["N", 6]}, {"list": []}, name="in_a_list")
    model.proto.graph.output[0].CopyFrom(
        helper.make_tensor_sequence_value_info("list", TensorProto.FLOAT, None)
    )
    return model


def summed() -> Model:
    """Return a model whose output is a single number for a whole batch."""
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["g"], "fc"),
        helper.make_node("ReduceSum", ["g"], ["y"], "sum", keepdims=0),
    ]
    return build(nodes, [weight("w", 6, 3)], {"x": ["N", 6]}, {"y": []}, name="summed")

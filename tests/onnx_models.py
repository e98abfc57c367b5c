"""Tiny ONNX models, built in code with seeded weights."""

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from seqto.graph.load import input_specs
from seqto.types import Model, Observed

Shape = Sequence[int | str]


def build(
    nodes: Sequence[onnx.NodeProto],
    weights: Sequence[onnx.TensorProto],
    inputs: dict[str, Shape],
    outputs: dict[str, Shape],
    *,
    name: str = "tiny",
    opset: int = 17,
    ir_version: int = 8,
) -> Model:
    """Return a model of these nodes; inputs and outputs are float32."""
    graph = helper.make_graph(nodes, name, _values(inputs), _values(outputs), weights)
    opsets = [helper.make_opsetid("", opset)]
    return Model(name, helper.make_model(graph, opset_imports=opsets, ir_version=ir_version))


def weight(name: str, *shape: int) -> onnx.TensorProto:
    """Return a seeded weight; another name has other values."""
    random = np.random.RandomState(sum(name.encode()))
    return numpy_helper.from_array((random.randn(*shape) / 3).astype(np.float32), name)


def feeds(model: Model, count: int = 2, seed: int = 0) -> dict[str, np.ndarray]:
    """Return random inputs, so many samples of each."""
    random = np.random.RandomState(seed)
    return {
        spec.name: random.randn(count, *(dim or 1 for dim in spec.shape[1:])).astype(spec.dtype)
        for spec in input_specs(model)
    }


def observed(model: Model) -> Observed:
    """Return what a study looks at where a model has one output: this one, its samples first."""
    return Observed({model.proto.graph.output[0].name: 0})


def run(
    model: Model, inputs: dict[str, np.ndarray], *, optimized: bool = False
) -> list[np.ndarray]:
    """Return the outputs, as computed from the graph as it stands unless it may be optimized."""
    import onnxruntime

    levels = onnxruntime.GraphOptimizationLevel
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = (
        levels.ORT_ENABLE_ALL if optimized else levels.ORT_DISABLE_ALL
    )
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        model.to_bytes(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, inputs)


def node_names(model: Model) -> list[str]:
    """Return the names of the nodes, in graph order."""
    return [node.name for node in model.proto.graph.node]


def op_types(model: Model) -> list[str]:
    """Return the types of the nodes, in graph order."""
    return [node.op_type for node in model.proto.graph.node]


def conv_bn_relu() -> Model:
    """Return Conv `conv`, BatchNormalization `norm` and Relu `relu`, on images of 3 x 8 x 8."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "conv", pads=[1, 1, 1, 1]),
        _norm("a", "b", "norm"),
        helper.make_node("Relu", ["b"], ["y"], "relu"),
    ]
    weights = [weight("w", 4, 3, 3, 3), *_norm_weights("norm", 4)]
    return build(nodes, weights, {"x": ["N", 3, 8, 8]}, {"y": ["N", 4, 8, 8]}, name="conv_bn_relu")


def residual() -> Model:
    """Return a classifier of 10 classes with a skip connection, on images of 3 x 8 x 8.

    Its layers are `stem`, `left`, `right` (Conv) and `head` (Gemm).
    """
    nodes = [
        helper.make_node("Conv", ["x", "stem_w", "stem_b"], ["s"], "stem", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["s"], ["sr"], "stem_relu"),
        helper.make_node("Conv", ["sr", "left_w", "left_b"], ["l"], "left", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["l"], ["lr"], "left_relu"),
        helper.make_node("Conv", ["lr", "right_w", "right_b"], ["r"], "right", pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["r", "sr"], ["sum"], "add"),
        helper.make_node("Relu", ["sum"], ["sumr"], "add_relu"),
        helper.make_node("GlobalAveragePool", ["sumr"], ["p"], "pool"),
        helper.make_node("Flatten", ["p"], ["f"], "flatten"),
        helper.make_node("Gemm", ["f", "head_w", "head_b"], ["y"], "head", transB=1),
    ]
    weights = [
        *(weight("stem_w", 8, 3, 3, 3), weight("stem_b", 8)),
        *(weight("left_w", 8, 8, 3, 3), weight("left_b", 8)),
        *(weight("right_w", 8, 8, 3, 3), weight("right_b", 8)),
        *(weight("head_w", 10, 8), weight("head_b", 10)),
    ]
    return build(nodes, weights, {"x": ["N", 3, 8, 8]}, {"y": ["N", 10]}, name="residual")


def old_model(opset: int = 10) -> Model:
    """Return a model as exporters wrote them: initializers are inputs, and ops that changed since.

    Its layers are `conv` and `fc`; the Softmax of these opsets works on the flattened input.
    """
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "conv"),
        _norm("a", "b", "norm"),
        helper.make_node("Dropout", ["b"], ["d"], "drop", ratio=0.5),
        helper.make_node("Clip", ["d"], ["c"], "clip", min=0.0, max=6.0),
        helper.make_node("Squeeze", ["c"], ["q"], "squeeze", axes=[2, 3]),
        helper.make_node("Gemm", ["q", "w2", "b2"], ["g"], "fc"),
        helper.make_node("Softmax", ["g"], ["y"], "softmax"),
    ]
    weights = [
        *(weight("w", 4, 3, 8, 8), *_norm_weights("norm", 4)),
        *(weight("w2", 4, 5), weight("b2", 5)),
    ]
    model = build(
        nodes,
        weights,
        {"x": ["N", 3, 8, 8]},
        {"y": ["N", 5]},
        name="old",
        opset=opset,
        ir_version=3,
    )
    for each in weights:
        value = helper.make_tensor_value_info(each.name, each.data_type, list(each.dims))
        model.proto.graph.input.append(value)
    return model


def gemm_model(*, bias: bool = True, **attributes: float) -> Model:
    """Return a Gemm `fc` between two Relus, from 6 to 4 features; attributes are the Gemm's."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "first"),
        helper.make_node("Gemm", ["a", "w", "b"][: 2 + bias], ["g"], "fc", **attributes),
        helper.make_node("Relu", ["g"], ["y"], "last"),
    ]
    shape = (4, 6) if attributes.get("transB") else (6, 4)
    weights = [weight("w", *shape), *([weight("b", 4)] if bias else [])]
    rows, columns = (6, "N") if attributes.get("transA") else ("N", 6)
    return build(nodes, weights, {"x": [rows, columns]}, {"y": ["N", 4]}, name="gemm")


def row_bias(*, shared: bool = False) -> Model:
    """Return a Gemm `fc` of 6 to 4 features with a bias of shape [1, 4], and a Gemm `head`.

    If it is shared, other nodes read the bias too, as a matrix and as a bias.
    """
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["g"], "fc"),
        helper.make_node("Relu", ["g"], ["r"], "relu"),
        helper.make_node("Gemm", ["r", "w2", "b"], ["y"], "head"),
    ]
    weights = [weight("w", 6, 4), weight("w2", 4, 4), weight("b", 1, 4)]
    outputs: dict[str, Shape] = {"y": ["N", 4]}
    if shared:
        # Both fail, or give another shape, with a bias of shape [4].
        nodes.append(helper.make_node("Concat", ["y", "b"], ["rows"], "concat", axis=0))
        nodes.append(helper.make_node("Gemm", ["b", "w2", "b"], ["row"], "self"))
        outputs |= {"rows": ["M", 4], "row": [1, 4]}
    return build(nodes, weights, {"x": ["N", 6]}, outputs, name="row_bias")


def matmul_add(shape: Shape = ("N", 6)) -> Model:
    """Return a MatMul `fc` and the Add `fc_add` of its bias, which ONNX Runtime makes a Gemm."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "fc"),
        helper.make_node("Add", ["a", "b"], ["y"], "fc_add"),
    ]
    weights = [weight("w", 6, 4), weight("b", 4)]
    return build(nodes, weights, {"x": shape}, {"y": [*shape[:-1], 4]}, name="matmul_add")


def unnamed() -> Model:
    """Return Conv, Relu, Conv, Relu where only the second Conv has a name: `Relu_1`."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w2"], ["c"], "Relu_1"),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    weights = [weight("w", 4, 3, 1, 1), weight("w2", 4, 4, 1, 1)]
    return build(nodes, weights, {"x": ["N", 3, 8, 8]}, {"y": ["N", 4, 8, 8]}, name="unnamed")


def _values(shapes: dict[str, Shape]) -> list[onnx.ValueInfoProto]:
    """Return what a graph says of its float inputs or outputs."""
    return [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape))
        for name, shape in shapes.items()
    ]


def _norm(given: str, output: str, name: str) -> onnx.NodeProto:
    """Return a batch normalization whose weights `_norm_weights` makes."""
    parameters = [f"{name}_{each}" for each in ("scale", "shift", "mean", "variance")]
    return helper.make_node("BatchNormalization", [given, *parameters], [output], name)


def _norm_weights(name: str, channels: int) -> list[onnx.TensorProto]:
    """Return the weights of a batch normalization, the variance positive."""
    variance = np.linspace(0.5, 2.0, channels, dtype=np.float32)
    return [
        *(weight(f"{name}_{each}", channels) for each in ("scale", "shift", "mean")),
        numpy_helper.from_array(variance, f"{name}_variance"),
    ]

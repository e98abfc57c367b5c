"""Models of any size that cost next to nothing to run, to see how a study's own cost grows."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WIDTH = 16
CLASSES = 10


def growing_model(layers: int, nodes: int) -> onnx.ModelProto:
    """Return a classifier of so many layers in residual blocks, and about so many nodes.

    Between the layers are additions, tanh and ReLU, spread evenly.
    """
    draw = np.random.RandomState(0)
    built: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []

    def constant(name: str, *shape: int) -> str:
        # Small enough that sums over hundreds of blocks stay finite.
        values = draw.randn(*shape) / np.sqrt(shape[0] * layers / 4)
        weights.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def add(kind: str, *inputs: str, name: str = "") -> str:
        name = name or f"{kind.lower()}{len(built)}"
        built.append(helper.make_node(kind, list(inputs), [f"{name}_y"], name))
        return f"{name}_y"

    before = "x"
    for at in range(layers - 1):
        # ONNX Runtime would make one node of a MatMul and an addition.
        made = add(
            "Relu", add("MatMul", before, constant(f"w{at}", WIDTH, WIDTH), name=f"layer{at}")
        )
        while len(built) < nodes * (at + 1) // layers - 1:
            # Bounded, so that however many there are nothing overflows.
            made = add("Relu", add("Tanh", add("Add", made, before)))
        before = add("Add", made, before)
    last = add("MatMul", before, constant("w", WIDTH, CLASSES), name="fc")
    graph = helper.make_graph(
        built,
        f"{layers} layers, {len(built)} nodes",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", WIDTH])],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, ["N", CLASSES])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def growing_samples(count: int = 120) -> np.ndarray:
    """Return samples for any of these models."""
    return np.random.RandomState(1).randn(count, WIDTH).astype(np.float32)

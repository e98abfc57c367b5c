"""Why a model cannot be studied, as far as its graph tells."""

from collections import Counter
from collections.abc import Collection, Iterator

import onnx
from onnx import TensorProto

from seqto.errors import ModelError
from seqto.graph.layers import weight_of
from seqto.graph.links import Links
from seqto.graph.nodes import all_nodes, initializers, subgraphs
from seqto.graph.quantized import QUANTIZING
from seqto.types import Model

_QUANTIZED = {*QUANTIZING, "QLinearConv", "QLinearMatMul", "QGemm", "MatMulNBits"}


def require_numbers(model: Model) -> None:
    """Raise if the model's first output is no tensor of numbers."""
    outputs = model.proto.graph.output
    kind = _not_numeric(outputs[0].type) if outputs else ""
    if kind:
        numeric = [repr(each.name) for each in outputs if not _not_numeric(each.type)]
        others = f", {' or '.join(numeric)} for example" if numeric else ""
        raise ModelError(
            f"model {model.name!r} cannot be compared with its candidates: its first output "
            f"{outputs[0].name!r} is made of {kind}. Export it with numbers as its first output"
            f"{others}."
        )


def why_no_layer(model: Model, op_types: Collection[str]) -> str:
    """Return why none of these operations is a layer, and what to do; empty if it is unknown."""
    graph = model.proto.graph
    operations = {node.op_type for node in all_nodes(graph)}
    if found := sorted(operations & _QUANTIZED):
        return (
            f"it is quantized already (it has {', '.join(found)}). Give the float model that it "
            "was made of."
        )
    if count := _count_float16(graph, op_types):
        return f"its {_layers(count)} float16 already. Export it in float32."
    if count := _count_double(graph, op_types):
        return f"its {_layers(count)} float64, which cannot be quantized. Export it in float32."
    inside = Counter(_around_layers(graph, op_types))
    if inside:
        return (
            f"its {_layers(inside.total())} inside the branches of {' and '.join(sorted(inside))}, "
            f"which cannot be quantized. {_remedy(graph)} it without control flow."
        )
    return ""


def _remedy(graph: onnx.GraphProto) -> str:
    """Return how users get rid of branches: by inputs that decide, or in their export."""
    words = ", ".join(f"{each.name}: {_example(each)}" for each in _deciding(graph))
    fixed = f"Choose a branch by fixing what decides on it, 'dataset.constants={{{words}}}', or "
    return f"{fixed}export" if words else "Export"


def _example(value: onnx.ValueInfoProto) -> str:
    """Return a value for such an input, if it cannot be any number."""
    tensor = value.type.tensor_type
    # A sampling rate of 1, say, would choose a branch, and the wrong one.
    one = "false" if tensor.elem_type == TensorProto.BOOL else "..."
    return f"[{one}]" if tensor.shape.dim else one


def _deciding(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """Return the inputs from which the conditions of all Ifs are computed, if all are one value."""
    links, constants = Links(graph), initializers(graph)
    inputs = {each.name: each for each in graph.input if each.name not in constants}
    pending = [node.input[0] for node in links.nodes if node.op_type == "If"]
    found: dict[str, onnx.ValueInfoProto] = {}
    seen: set[str] = set()
    while pending:
        name = pending.pop()
        if name in inputs:
            found[name] = inputs[name]
        elif name not in seen and (maker := links.maker(name)) is not None:
            pending.extend(maker.input)
        seen.add(name)
    single = all(
        dim.dim_value == 1 for each in found.values() for dim in each.type.tensor_type.shape.dim
    )
    return list(found.values()) if single else []


def _layers(count: int) -> str:
    return "only layer is" if count == 1 else f"{count} layers are"


def _not_numeric(kind: onnx.TypeProto) -> str:
    """Return what a value is made of if it is no tensor of numbers, or an unknown one."""
    if kind.HasField("tensor_type"):
        return "strings" if kind.tensor_type.elem_type == TensorProto.STRING else ""
    field = kind.WhichOneof("value")
    return f"{field.removesuffix('_type').replace('_', ' ')}s" if field else ""


def _count_float16(graph: onnx.GraphProto, op_types: Collection[str]) -> int:
    """Return how many layers have a float16 weight, which ONNX Runtime casts where they need it."""
    links = Links(graph)
    half = {each.name for each in graph.initializer if each.data_type == TensorProto.FLOAT16}

    def is_half(tensor: str) -> bool:
        maker = links.maker(tensor)
        return maker is not None and maker.op_type == "Cast" and maker.input[0] in half

    return sum(
        any(map(is_half, node.input[:2])) for node in links.nodes if node.op_type in op_types
    )


def _count_double(graph: onnx.GraphProto, op_types: Collection[str]) -> int:
    """Return how many layers have a float64 weight, as scikit-learn's may have."""
    double = {each.name for each in graph.initializer if each.data_type == TensorProto.DOUBLE}
    layers = [node for node in graph.node if node.op_type in op_types]
    return sum(any(name in double for name in node.input[:2]) for node in layers)


def _around_layers(
    graph: onnx.GraphProto,
    op_types: Collection[str],
    outside: dict[str, TensorProto] | None = None,
    around: str = "",
) -> Iterator[str]:
    """Yield the operation around each layer that is inside one (If, Loop, Scan)."""
    constants = {**(outside or {}), **initializers(graph)}
    for node in graph.node:
        if around and node.op_type in op_types and weight_of(node, constants) is not None:
            yield around
        for inner in subgraphs(node):
            yield from _around_layers(inner, op_types, constants, node.op_type)

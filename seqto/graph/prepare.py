"""Brings published models into the form that quantizers need.

Expects any ONNX model; the result has opset 13 or later, uniquely named nodes, constants and batch
normalization folded, flat biases, tables stored once, and the shapes of its activations inferred.
"""

import contextlib
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import Message
from onnx import helper, version_converter

from seqto.errors import ModelError
from seqto.graph.batch_sizes import keep_batch_sizes
from seqto.graph.biases import flatten_biases
from seqto.graph.files import Weights, save_hollow, stripped
from seqto.graph.folding import folded, folded_small
from seqto.graph.known_sizes import take_known_branches
from seqto.graph.links import Links
from seqto.graph.load import first_line
from seqto.graph.nodes import all_nodes, attribute, initializers, tensor_names, unused_name
from seqto.graph.reasons import require_numbers
from seqto.graph.ties import tie_tables
from seqto.types import Model
from seqto.types.storage import is_large

MINIMUM_OPSET = 13
"""The first opset in which QuantizeLinear can work per channel."""

_DEFAULT_DOMAINS = ("", "ai.onnx")
_FUSION_SUFFIX = re.compile(r"/(MatMulAdd|GemmTranspose|GemmSum)Fusion/?(_token_\d+)?$")
_GEMM_RESHAPE = re.compile(r"gemm_(input|output)_(re)?shape(_|$)")
_MATMUL_BN_WEIGHT = "MatMulBnFusion_GemmB_"
_ORT_NOISE = re.compile(
    r"\[ONNXRuntimeError\] : \d+ : \w+ : |Load model from \S+ failed: ?"
    r"|/\S+\.(cc|h):\d+ .*?\) (?=[A-Z])"
)
_ORT_WARNING, _ORT_ERROR = 2, 3


def prepare(model: Model) -> Model:
    """Return the model ready to be quantized, the same bytes each time."""
    require_numbers(model)
    proto, weights = stripped(model.proto)
    drop_constant_inputs(proto)
    # Before the conversion, so that numbers in names count the nodes of the user's file.
    name_nodes(proto.graph)
    proto = _at_least(proto, MINIMUM_OPSET, model.name)
    take_known_branches(proto)
    name_nodes(proto.graph)
    free_fusion_names(proto.graph)
    given = initializers(proto.graph).keys()
    optimized = _optimized(proto, weights, model.name)
    keep_batch_sizes(optimized.graph)
    restore_names(optimized.graph, proto.graph)
    free_fusion_names(optimized.graph)
    name_nodes(optimized.graph)
    tie_tables(optimized.graph, given)
    flatten_biases(optimized.graph)
    tidy(optimized)
    require_folded(optimized.graph, model.name)
    _check(optimized, model.name)
    return Model(model.name, optimized)


def drop_constant_inputs(proto: onnx.ModelProto) -> None:
    """Remove the initializers from the graph's inputs, where IR version 3 required them."""
    graph = proto.graph
    constants = initializers(graph)
    kept = [each for each in graph.input if each.name not in constants]
    if len(kept) < len(graph.input):
        del graph.input[:]
        graph.input.extend(kept)
    # From IR version 4 on, an initializer need not be an input.
    proto.ir_version = max(proto.ir_version, 4)


def name_nodes(graph: onnx.GraphProto) -> None:
    """Give each node a unique name; the first node of each existing name keeps it."""
    taken = {node.name for node in graph.node}
    seen: set[str] = {""}
    for index, node in enumerate(graph.node):
        if node.name in seen:
            node.name = unused_name(node.name or f"{node.op_type}_{index}", taken)
        seen.add(node.name)
        taken.add(node.name)


def restore_names(graph: onnx.GraphProto, original: onnx.GraphProto) -> None:
    """Restore the names of layers that ONNX Runtime renamed when it fused them."""
    names = {node.name for node in original.node}
    free = names - {node.name for node in graph.node}
    by_weight = {node.input[1]: node.name for node in original.node if node.op_type == "MatMul"}
    for node in graph.node:
        before = _name_before_fusion(node, by_weight) if node.name not in names else ""
        if before in free:
            node.name = before
            free.remove(before)


def free_fusion_names(graph: onnx.GraphProto) -> None:
    """Rename the Reshapes around fused Gemms, and their shapes, which ONNX Runtime named.

    When it fuses a MatMul and its Add in a session, it does not check whether a constant has the
    name already that it gives to the new shape, and then the session does not load.
    """
    taken = tensor_names(graph) | {node.name for node in graph.node}
    outputs = {each.name for each in graph.output}
    renamed: dict[str, str] = {}
    for each in (*graph.initializer, *graph.node):
        if _GEMM_RESHAPE.match(each.name) and each.name not in outputs:
            free = unused_name(f"prepared_{each.name}", taken)
            if isinstance(each, onnx.TensorProto):
                renamed[each.name] = free
            each.name = free
            taken.add(free)
    for node in all_nodes(graph):
        node.input[:] = [renamed.get(name, name) for name in node.input]


def tidy(proto: onnx.ModelProto) -> None:
    """Remove what ONNX Runtime adds and nothing uses, and sort what has no order of its own."""
    _keep_used_opsets(proto)
    graph = proto.graph
    links = Links(graph)
    known = {
        each.name: each
        for each in graph.value_info
        if links.is_used(each.name) or links.maker(each.name) is not None
    }
    _replace(graph.value_info, known)
    constants = initializers(graph)
    if len(constants) < len(graph.initializer):
        _replace(graph.initializer, constants)
    # In place, because protobuf keeps the memory of what is deleted.
    graph.initializer.sort(key=lambda tensor: tensor.name)


def require_folded(graph: onnx.GraphProto, name: str) -> None:
    """Raise if a batch normalization was not folded into its convolution although it could be."""
    # Quantizers would leave it in float between quantized layers: slow, and easily missed.
    links = Links(graph)
    for node in filter(_is_inference_norm, links.nodes):
        convolution = links.maker(node.input[0])
        if convolution is None or convolution.op_type != "Conv":
            continue
        alone = len(links.readers(node.input[0])) == 1 and node.input[0] not in links.outputs
        if alone and {*convolution.input[1:], *node.input[1:]} - {""} <= links.constants:
            raise ModelError(
                f"Model {name}: batch normalization {node.name!r} was not folded into "
                f"{convolution.name!r}; export the model in inference mode (model.eval())."
            )


def _at_least(proto: onnx.ModelProto, opset: int, name: str) -> onnx.ModelProto:
    """Return the model in this opset, or unchanged if its own is later."""
    versions = [o.version for o in proto.opset_import if o.domain in _DEFAULT_DOMAINS]
    given = max(versions, default=opset)
    if given < opset:
        try:
            proto = version_converter.convert_version(proto, opset)
        except Exception as error:  # The converter raises RuntimeError and others.
            raise ModelError(
                f"Model {name} cannot be converted from opset {given} to {opset} "
                f"({first_line(error)}): export it again with opset {opset} or later."
            ) from error
    needed = helper.find_min_ir_version_for(list(proto.opset_import), ignore_unknown=True)
    proto.ir_version = max(proto.ir_version, needed)
    return proto


def _optimized(proto: onnx.ModelProto, weights: Weights, name: str) -> onnx.ModelProto:
    """Return the model with constants folded and shapes inferred by ONNX Runtime."""
    with tempfile.TemporaryDirectory(prefix="seqto-") as folder, _quiet():
        try:
            if weights:
                return folded(proto, weights, Path(folder) / "result.onnx")
            return folded_small(proto, Path(folder))
        except Exception as error:  # ONNX Runtime's errors have no common base.
            raise ModelError(
                f"Model {name} cannot be prepared for quantization: ONNX Runtime says "
                f"{_cause(error)!r}. Check that it runs in onnxruntime as it is."
            ) from error


def _cause(error: BaseException) -> str:
    """Return ONNX Runtime's message without its source locations and temporary paths."""
    return first_line(_ORT_NOISE.sub("", str(error)))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep what ONNX Runtime logs of an error off stderr: the error says it too."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(_ORT_ERROR)
    try:
        yield
    finally:
        onnxruntime.set_default_logger_severity(_ORT_WARNING)


def _name_before_fusion(node: onnx.NodeProto, by_weight: Mapping[str, str]) -> str:
    """Return the name that a fused MatMul or Gemm had, empty if that is unknown."""
    name = node.name
    while _FUSION_SUFFIX.search(name):
        name = _FUSION_SUFFIX.sub("", name)
    if name != node.name:
        return name
    weight = node.input[1] if len(node.input) > 1 else ""
    return by_weight.get(weight.removeprefix(_MATMUL_BN_WEIGHT), "")


def _keep_used_opsets(proto: onnx.ModelProto) -> None:
    """Remove the imports of domains that no node uses."""
    used = {node.domain for node in all_nodes(proto.graph)}.union(_DEFAULT_DOMAINS)
    used.update(node.domain for function in proto.functions for node in function.node)
    kept = {each.domain: each for each in proto.opset_import if each.domain in used}
    _replace(proto.opset_import, kept)


def _replace(field: Any, kept: Mapping[str, Message]) -> None:
    """Make these the content of a repeated field, sorted by name."""
    ordered = [kept[name] for name in sorted(kept)]
    del field[:]
    field.extend(ordered)


def _is_inference_norm(node: onnx.NodeProto) -> bool:
    """Tell whether the node is a batch normalization that does not train."""
    return node.op_type == "BatchNormalization" and not attribute(node, "training_mode", 0)


def _check(proto: onnx.ModelProto, name: str) -> None:
    """Raise if the prepared model is not valid ONNX."""
    try:
        _check_whole(proto)
    except onnx.checker.ValidationError as error:
        raise ModelError(
            f"Model {name} is not valid ONNX after its preparation ({first_line(error)}): "
            "check it with onnx.checker, and export it again."
        ) from error


def _check_whole(proto: onnx.ModelProto) -> None:
    """Have onnx check the model; the values of its weights do not matter."""
    if not is_large(proto):
        onnx.checker.check_model(proto)
        return
    light, weights = stripped(proto)
    with tempfile.TemporaryDirectory(prefix="seqto-") as folder:
        path = Path(folder) / "model.onnx"
        save_hollow(light, weights, path)
        onnx.checker.check_model(path)

"""Weights as coded streams, with the nodes that decode them when a model is loaded.

Weights that one code serves well are one stream, which is decoded at once and then split.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from seqto.graph.codebooks import Tree
from seqto.graph.coding import LowBits, Stream, encode
from seqto.graph.decoders import DOMAIN, SHIFTS, functions, of_length
from seqto.graph.grids import OCTAVES, Grid
from seqto.graph.nodes import tensor_names
from seqto.graph.short_names import short_names
from seqto.graph.stream_groups import grouped

_UNPACKED = {1: "one", 2: "two", 4: "four"}


@dataclass(frozen=True, eq=False)
class CodedWeight:
    """A weight to be coded, the name that it has once it is decoded, and its type there."""

    output: str
    grid: Grid
    data_type: int

    @property
    def integers(self) -> np.ndarray:
        """What is coded."""
        return self.grid.integers


@dataclass(frozen=True, eq=False)
class CodedIntegers:
    """Integers to be coded that stay integers; the name and type that they have once decoded."""

    output: str
    integers: np.ndarray
    data_type: int


def code_weights(
    proto: onnx.ModelProto, weights: Sequence[CodedWeight] | Sequence[CodedIntegers]
) -> None:
    """Add the streams of these weights, which are not empty, and the nodes that decode them.

    Expects a model of opset 21 or later; each weight is then the tensor
    that its output names. The nodes are put before all others.
    """
    if not weights:
        return
    coding = _Coding(tensor_names(proto.graph).union(each.output for each in weights))
    coding.code(weights)
    nodes = [*coding.nodes, *proto.graph.node]
    kept = [onnx.NodeProto.FromString(each.SerializeToString()) for each in nodes]
    del proto.graph.node[:]
    proto.graph.node.extend(kept)
    proto.graph.initializer.extend(coding.tensors)
    proto.graph.value_info.extend(coding.shapes)
    _add_functions(proto, {node.op_type for node in coding.nodes})


def _add_functions(proto: onnx.ModelProto, used: set[str]) -> None:
    if all(each.domain != DOMAIN for each in proto.opset_import):
        proto.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    opset = max(each.version for each in proto.opset_import if not each.domain)
    known = {(each.domain, each.name) for each in proto.functions}
    proto.functions.extend(
        each
        for each in functions(opset)
        if each.name in used and (each.domain, each.name) not in known
    )
    needed = helper.find_min_ir_version_for(list(proto.opset_import), ignore_unknown=True)
    proto.ir_version = max(proto.ir_version, needed)


class _Coding:
    """Collects the tensors and nodes of coded weights, under short names that are not taken."""

    def __init__(self, taken: set[str]) -> None:
        self.tensors: list[onnx.TensorProto] = []
        self.nodes: list[onnx.NodeProto] = []
        self.shapes: list[onnx.ValueInfoProto] = []
        self._names = (name for name in short_names() if name not in taken)
        self._tables: dict[str, str] = {}
        self._scales = ""

    def code(self, weights: Sequence[CodedWeight] | Sequence[CodedIntegers]) -> None:
        """Add all that makes these weights."""
        names = ("sides", *_UNPACKED.values())
        made = self._made("Tables", [self._hold(SHIFTS)], len(names))
        self._tables = dict(zip(names, made, strict=True))
        (self._scales,) = self._made("Scales", [self._hold(OCTAVES)], 1)
        for group in grouped([each.integers for each in weights]):
            self._group([weights[at] for at in group])

    def _group(self, weights: Sequence[CodedWeight | CodedIntegers]) -> None:
        """Add one stream, and the weights that are in it."""
        stream = encode(np.concatenate([each.integers.reshape(-1) for each in weights]))
        flat = self._stream(stream)
        for low in stream.low:
            flat = self._joined(flat, low)
        sizes = [each.integers.size for each in weights]
        for weight, part in zip(weights, self._parts(flat, sizes, stream.filled), strict=True):
            shape = self._hold(np.array(weight.integers.shape, np.int64))
            if isinstance(weight, CodedWeight):
                self._weight(weight, part, shape)
            else:
                self._shaped(weight, part, shape, stream.words.dtype)

    def _joined(self, high: str, low: LowBits) -> str:
        """Return the tensor of integers with some of their low bits, given what is above."""
        shift = self._hold(np.array([low.shift], np.uint8))
        given = [self._hold(low.codes), self._tables[_UNPACKED[low.width]], shift]
        return self._made("Join", [high, *given], 1)[0]

    def _parts(self, tensor: str, sizes: Sequence[int], whole: int) -> list[str]:
        """Return parts of these sizes of a tensor that is so large as a whole, along its start."""
        rest = whole - sum(sizes)
        if len(sizes) == 1 and not rest:
            return [tensor]
        every = [*sizes, rest] if rest else [*sizes]
        made = self._made(
            "Split", [tensor, self._hold(np.array(every, np.int64))], len(every), domain=""
        )
        return made[: len(sizes)]

    def _weight(self, weight: CodedWeight, integers: str, shape: str) -> None:
        grid = weight.grid
        given = [shape, self._hold(grid.steps), self._hold(np.asarray(grid.largest))]
        (made,) = self._made("Weight", [integers, *given, self._scales], 1)
        if weight.data_type != TensorProto.FLOAT:
            self._cast(made, weight.data_type)
        self.nodes[-1].output[0] = weight.output

    def _shaped(self, weight: CodedIntegers, integers: str, shape: str, kind: np.dtype) -> None:
        if helper.np_dtype_to_tensor_dtype(kind) != weight.data_type:
            integers = self._cast(integers, weight.data_type)
        self._node("Reshape", [integers, shape])
        self.nodes[-1].output[0] = weight.output

    def _cast(self, tensor: str, data_type: int) -> str:
        made = self._node("Cast", [tensor])
        self.nodes[-1].attribute.append(helper.make_attribute("to", data_type))
        return made

    def _stream(self, stream: Stream) -> str:
        """Return the tensor of a stream's integers without their low bits."""
        book, length = stream.book, stream.words.shape[1]
        sizes = [2**width for width in book.widths]
        columns = [self._column(each, sizes) for each in stream.words.T]
        (whole,) = self._made("Places", [self._hold(np.array(stream.places, np.int32))], 1)
        reached = self._reached(book.tree, whole, iter(stream.planes))
        every = [
            self._class(stream, at, [column[at] for column in columns])
            if at != book.escape
            else [self._hold(np.ascontiguousarray(each)) for each in stream.escapes.T]
            for at in reached
        ]
        places = self._concatenated([*reached.values()])
        parts = [self._concatenated(each) for each in zip(*every, strict=True)]
        return self._made(of_length("Words", length), [places, *parts], 1)[0]

    def _column(self, words: np.ndarray, sizes: Sequence[int]) -> list[str]:
        """Return the tensors of one integer of all words, one for each class."""
        held = np.ascontiguousarray(words)
        return self._parts(self._hold(held), sizes, len(held)) if sizes else []

    def _reached(self, tree: Tree, places: str, planes: Iterator[np.ndarray]) -> dict[int, str]:
        """Return the tensors of the places of each class below this tree."""
        if isinstance(tree, int):
            return {tree: places}
        plane = next(planes)
        sides = self._made("Sides", [self._hold(plane), places, self._tables["sides"]], 2)
        ones = int(np.unpackbits(plane).sum())
        # ONNX Runtime only folds what it knows the size of, and here that depends on values.
        for name, count in zip(sides, (8 * len(plane) - ones, ones), strict=True):
            self.shapes.append(helper.make_tensor_value_info(name, TensorProto.INT32, [count]))
        zero, one = (
            self._reached(side, each, planes) for side, each in zip(tree, sides, strict=True)
        )
        return zero | one

    def _class(self, stream: Stream, at: int, words: Sequence[str]) -> list[str]:
        """Return the tensors of the first integers of a class's words, of the second, and so on."""
        width, count = stream.book.widths[at], len(words)
        if not width:
            size = self._hold(np.array([stream.counts[at]], np.int64))
            return self._made(of_length("Fill", count), [size, *words], count)
        codes = self._hold(stream.codes[at])
        if width in _UNPACKED:
            given = [codes, self._tables[_UNPACKED[width]]]
            return self._made(of_length("Leaf", count), [*given, *words], count)
        return self._made(of_length("Bytes", count), [codes, *words], count)

    def _concatenated(self, tensors: Sequence[str]) -> str:
        if len(tensors) == 1:
            return tensors[0]
        joined = self._node("Concat", tensors)
        self.nodes[-1].attribute.append(helper.make_attribute("axis", 0))
        return joined

    def _hold(self, values: np.ndarray) -> str:
        self.tensors.append(numpy_helper.from_array(values, next(self._names)))
        return str(self.tensors[-1].name)

    def _node(self, op_type: str, inputs: Sequence[str]) -> str:
        return self._made(op_type, inputs, 1, domain="")[0]

    def _made(
        self, op_type: str, inputs: Sequence[str], outputs: int, domain: str = DOMAIN
    ) -> list[str]:
        """Return the outputs of a new node."""
        names = [next(self._names) for _ in range(outputs)]
        self.nodes.append(helper.make_node(op_type, inputs, names, domain=domain))
        return names

"""Weights as coded streams, with the nodes that decode them when a model is loaded.

Weights that one code serves well are one stream, which is decoded at once and then split.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from seqto.graph.codebooks import Tree
from seqto.graph.coding import Stream, encode
from seqto.graph.decoders import DOMAIN, SHIFTS, functions
from seqto.graph.grids import OCTAVES, Grid
from seqto.graph.nodes import tensor_names
from seqto.graph.stream_groups import grouped

_SIDES = ("ranks", "sides", "sums")
_UNPACKED = {1: "one", 2: "two", 4: "four"}


@dataclass(frozen=True, eq=False)
class CodedWeight:
    """A weight to be coded, the name that it has once it is decoded, and its type there."""

    output: str
    grid: Grid
    data_type: int


def code_weights(proto: onnx.ModelProto, weights: Sequence[CodedWeight]) -> None:
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
        self._names = (name for name in _short_names() if name not in taken)
        self._tables: dict[str, str] = {}
        self._scales = ""

    def code(self, weights: Sequence[CodedWeight]) -> None:
        """Add all that makes these weights."""
        names = (*_SIDES, *_UNPACKED.values())
        made = self._made("Tables", [self._hold(SHIFTS)], len(names))
        self._tables = dict(zip(names, made, strict=True))
        (self._scales,) = self._made("Scales", [self._hold(OCTAVES)], 1)
        for group in grouped([each.grid.integers for each in weights]):
            self._group([weights[at] for at in group])

    def _group(self, weights: Sequence[CodedWeight]) -> None:
        """Add one stream, and the weights that are in it."""
        stream = encode(np.concatenate([each.grid.integers.reshape(-1) for each in weights]))
        rows = self._stream(stream)
        flat = self._node("Reshape", [rows, self._hold(np.array([-1], np.int64))])
        if stream.low_bits:
            flat = self._joined(stream, flat)
        sizes = [each.grid.integers.size for each in weights]
        for weight, integers in zip(weights, self._parts(flat, sizes, stream.filled), strict=True):
            self._weight(weight, integers)

    def _joined(self, stream: Stream, high: str) -> str:
        """Return the tensor of a stream's integers, given what is above their low bits."""
        table = self._tables[_UNPACKED[stream.low_bits]]
        times = self._hold(np.array([2**stream.low_bits], np.int32))
        return self._made("Join", [high, self._hold(stream.low), table, times], 1)[0]

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

    def _weight(self, weight: CodedWeight, integers: str) -> None:
        grid = weight.grid
        given = [
            self._hold(np.array(grid.integers.shape, np.int64)),
            self._hold(grid.steps),
            self._hold(np.asarray(grid.largest)),
        ]
        (made,) = self._made("Weight", [integers, *given, self._scales], 1)
        if weight.data_type != TensorProto.FLOAT:
            self._node("Cast", [made])
            self.nodes[-1].attribute.append(helper.make_attribute("to", weight.data_type))
        self.nodes[-1].output[0] = weight.output

    def _stream(self, stream: Stream) -> str:
        """Return the tensor of a stream's words."""
        book = stream.book
        sizes = [2**width for width in book.widths]
        words = self._parts(self._hold(book.words), sizes, len(book.words)) if sizes else []
        leaves = [self._class(stream, at, each) for at, each in enumerate(words)]
        if len(stream.escapes):
            leaves.append(self._hold(stream.escapes))
        return self._tree(book.tree, leaves, iter(stream.planes))

    def _tree(self, tree: Tree, leaves: Sequence[str], planes: Iterator[np.ndarray]) -> str:
        """Return the tensor of the words below this tree."""
        if isinstance(tree, int):
            return leaves[tree]
        bits = self._hold(next(planes))
        sides = [self._tree(side, leaves, planes) for side in tree]
        tables = [self._tables[each] for each in _SIDES]
        return self._made("Merge", [bits, *sides, *tables], 1)[0]

    def _class(self, stream: Stream, at: int, words: str) -> str:
        """Return the tensor of a class's words."""
        width = stream.book.widths[at]
        if not width:
            count = self._hold(np.array([stream.counts[at]], np.int64))
            return self._made("Fill", [count, words], 1)[0]
        codes = self._hold(stream.codes[at])
        if width in _UNPACKED:
            return self._made("Leaf", [codes, words, self._tables[_UNPACKED[width]]], 1)[0]
        return self._made("Bytes", [codes, words], 1)[0]

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


def _short_names() -> Iterator[str]:
    number = 0
    while True:
        yield f"c{number:x}"
        number += 1

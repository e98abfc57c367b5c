"""Looks rows up in tables that are stored in fewer bits.

Rows are gathered first and unpacked then: a table of words is never unpacked as a whole. This gives
the same values, takes a tenth of the time at load and a quarter of the memory, and hardly more time
per inference.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from seqto.graph.nodes import attribute, unused_name
from seqto.graph.packing import Packed


def is_lookup(node: onnx.NodeProto) -> bool:
    """Return whether the node takes rows along the first axis of a table."""
    return bool(node.op_type == "Gather" and attribute(node, "axis", 0) == 0)


@dataclass(eq=False)
class Unpacking:
    """The nodes in place of a lookup, and the tensors that they read."""

    tensors: list[onnx.TensorProto] = field(default_factory=list)
    nodes: list[onnx.NodeProto] = field(default_factory=list)


class Lookup:
    """A Gather and the packed form of its table."""

    def __init__(self, node: onnx.NodeProto, table: onnx.TensorProto, packed: Packed) -> None:
        self._name, self._output = str(node.name), str(node.output[0])
        self._indices = str(node.input[1])
        self._dims = list(table.dims)
        self._packed = packed
        self._made = Unpacking()
        self._taken: Collection[str] = ()

    def unpacked(self, taken: Collection[str]) -> Unpacking:
        """Return the nodes that make the Gather's output; other tensors have the names `taken`."""
        self._made, self._taken = Unpacking([*self._packed.held]), taken
        rows = self._values()
        if self._packed.scales is not None:
            rows = self._node("Mul", [rows, self._scales(self._packed.scales)], "scaled")
        self._in_shape(rows)
        self._made.nodes[-1].output[0] = self._output
        return self._made

    def _values(self) -> str:
        """Return the name of the rows' values, not scaled yet."""
        values = self._packed.values
        stored = str(values.name)
        if values.data_type == TensorProto.INT4:
            # There is no Gather of 4-bit integers. This is folded at load.
            stored = self._node("Cast", [stored], "wide", to=TensorProto.INT8)
        return self._cast(self._rows(stored, "rows"), "values")

    def _scales(self, scales: onnx.TensorProto) -> str:
        rows = self._rows(str(scales.name), "scale")
        if scales.data_type == self._packed.weight_type:
            return rows
        return self._cast(rows, "scales")

    def _in_shape(self, rows: str) -> None:
        """Join the blocks of each row."""
        if list(self._packed.values.dims) == self._dims:
            return
        row, padded = self._dims[1:], self._packed.padded[-1]
        if padded == math.prod(row):
            self._reshaped(rows, row, "joined")
            return
        rows = self._sliced(self._reshaped(rows, [padded], "joined"), math.prod(row))
        if len(row) > 1:
            self._reshaped(rows, row, "whole")

    def _sliced(self, rows: str, size: int) -> str:
        limits = {"from": 0, "to": size, "along": -1}
        inputs = [self._integers([value], kind) for kind, value in limits.items()]
        return self._node("Slice", [rows, *inputs], "sliced")

    def _reshaped(self, rows: str, dims: Sequence[int], kind: str) -> str:
        """Return rows of this shape, as many and arranged as the indices are."""
        indices = self._node("Shape", [self._indices], f"{kind}_indices")
        row = self._integers(dims, f"{kind}_row")
        shape = self._node("Concat", [indices, row], f"{kind}_shape", axis=0)
        return self._node("Reshape", [rows, shape], kind)

    def _rows(self, table: str, kind: str) -> str:
        return self._node("Gather", [table, self._indices], kind, axis=0)

    def _cast(self, tensor: str, kind: str) -> str:
        return self._node("Cast", [tensor], kind, to=self._packed.weight_type)

    def _integers(self, values: Sequence[int], kind: str) -> str:
        name = self._free(kind)
        self._made.tensors.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def _node(self, op_type: str, inputs: Sequence[str], kind: str, **options: Any) -> str:
        output, name = self._free(kind), f"{self._name}_{kind}"
        self._made.nodes.append(helper.make_node(op_type, inputs, [output], name, **options))
        return output

    def _free(self, kind: str) -> str:
        return unused_name(f"{self._output}_{kind}", self._taken)

"""Keeps a table that is also the weight of a MatMul, transposed, from being stored twice.

Language models read the words' embeddings by a Gather, and multiply by their transpose in the end.
ONNX Runtime folds that Transpose, which leaves two tables in the file.
"""

from collections.abc import Collection

import numpy as np
import onnx
from onnx import helper, numpy_helper

from seqto.graph.layers import FLOAT_TYPES, weights_of
from seqto.graph.links import Links, drop_unused
from seqto.graph.nodes import initializers, replace_nodes, tensor_names, unused_name


def tie_tables(graph: onnx.GraphProto, given: Collection[str]) -> None:
    """Let MatMuls read the table again of which folding made them a transposed copy.

    `given` are the constants that the model had before. Such a MatMul becomes a Gemm between two
    Reshapes, as a Gemm takes a weight as it is, or transposed.
    """
    copies = _transposed_tables(graph, given)
    if not copies:
        return
    taken = tensor_names(graph) | {node.name for node in graph.node}
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in copies:
            nodes += _product(node, copies[node.input[1]], graph, taken)
        else:
            nodes.append(node)
    replace_nodes(graph, nodes)
    drop_unused(graph, copies)


def _transposed_tables(graph: onnx.GraphProto, given: Collection[str]) -> dict[str, str]:
    """Return the new constants that are a table transposed, with the table's name."""
    constants, links = initializers(graph), Links(graph)
    tables = {
        table.name: table
        for node in graph.node
        if node.op_type == "Gather"
        for table in weights_of(node, constants)
        if len(table.dims) == 2
    }
    made = [
        each
        for each in graph.initializer
        if each.name not in given
        and each.data_type in FLOAT_TYPES
        and len(each.dims) == 2
        and all(_multiplies_by(node, each.name) for node in links.readers(each.name))
    ]
    return {
        copy.name: name
        for copy in made
        for name, table in tables.items()
        if list(copy.dims) == list(table.dims)[::-1]
        and copy.data_type == table.data_type
        and np.array_equal(numpy_helper.to_array(copy), numpy_helper.to_array(table).T)
    }


def _multiplies_by(node: onnx.NodeProto, tensor: str) -> bool:
    """Return whether the node is a MatMul with this tensor on its right alone."""
    return node.op_type == "MatMul" and node.input[1] == tensor != node.input[0]


def _product(
    node: onnx.NodeProto, table: str, graph: onnx.GraphProto, taken: Collection[str]
) -> list[onnx.NodeProto]:
    """Return the nodes that multiply by the transposed table, and add their constants."""
    given, output = node.input[0], node.output[0]
    words, width = initializers(graph)[table].dims

    def name(kind: str) -> str:
        return unused_name(f"{output}_{kind}", taken)

    sizes = {"flat": [-1, width], "words": [words], "from": [0], "to": [-1]}
    graph.initializer.extend(
        numpy_helper.from_array(np.array(each, np.int64), name(kind))
        for kind, each in sizes.items()
    )
    rows, product, shape, before, after = map(name, ("rows", "product", "shape", "before", "after"))
    return [
        helper.make_node("Reshape", [given, name("flat")], [rows], rows),
        helper.make_node("Gemm", [rows, table], [product], node.name, transB=1),
        helper.make_node("Shape", [given], [shape], shape),
        helper.make_node("Slice", [shape, name("from"), name("to")], [before], before),
        helper.make_node("Concat", [before, name("words")], [after], after, axis=0),
        helper.make_node("Reshape", [product, after], [output], name("in_shape")),
    ]

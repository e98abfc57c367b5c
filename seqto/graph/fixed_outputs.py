"""Outputs that depend on no input: they say nothing of a sample."""

import onnx

from seqto.graph.nodes import all_nodes, initializers, reads

RANDOM = {
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "Bernoulli",
    "Multinomial",
}
"""Operations that make other values in each run."""


def fixed_outputs(graph: onnx.GraphProto) -> set[str]:
    """Return the outputs that are the same whatever goes in, such as a policy's `log_std`."""
    varying = {each.name for each in graph.input} - set(initializers(graph))
    for node in graph.node:
        if node.op_type in RANDOM or any(name in varying for name in reads(node)):
            varying.update(node.output)
    return {each.name for each in graph.output} - varying


def is_random(graph: onnx.GraphProto) -> bool:
    """Tell whether a model draws random numbers."""
    return any(node.op_type in RANDOM for node in all_nodes(graph))

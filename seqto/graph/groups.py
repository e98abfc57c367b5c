"""Layers that have to have the same precision."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from seqto.graph.layers import weight_of
from seqto.graph.nodes import initializers
from seqto.types import Kernel, Layer, Model


def run_as_one(
    model: Model, layers: Sequence[Layer], kernels: Mapping[str, Kernel]
) -> tuple[Layer, ...]:
    """Return the layers, grouped where one kernel runs them or where they read the same weight."""
    # A weight in two precisions would be stored twice.
    weights = _weights(model)
    # Kernels without a name cannot be told apart.
    running = {name: kernel.name for name, kernel in kernels.items() if kernel.name}
    firsts = _united([layer.name for layer in layers], (weights, running))
    members = Counter(firsts.values())
    groups = {name: first if members[first] > 1 else "" for name, first in firsts.items()}
    return tuple(
        replace(layer, group=groups[layer.name], weight=weights.get(layer.name, ""))
        for layer in layers
    )


def _weights(model: Model) -> dict[str, str]:
    """Return the name of each node's weight, of those that have one."""
    constants = initializers(model.proto.graph)
    found = {node.name: weight_of(node, constants) for node in model.proto.graph.node}
    return {name: weight.name for name, weight in found.items() if weight is not None}


def _united(names: Sequence[str], relations: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return the first name of each name's group; equal values in a relation tie names."""
    firsts = {name: name for name in names}
    place = {name: index for index, name in enumerate(names)}
    for relation in relations:
        seen: dict[str, str] = {}
        for name in filter(relation.__contains__, names):
            tied = {firsts[name], firsts[seen.setdefault(relation[name], name)]}
            first = min(tied, key=place.__getitem__)
            firsts |= {each: first for each, its in firsts.items() if its in tied}
    return firsts

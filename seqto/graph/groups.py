"""Layers that have to have the same precision."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from seqto.graph.layers import weights_of
from seqto.graph.nodes import initializers
from seqto.types import Kernel, Layer, Model


def run_as_one(
    model: Model, layers: Sequence[Layer], kernels: Mapping[str, Kernel]
) -> tuple[Layer, ...]:
    """Return the layers, grouped where one kernel runs them or where they read the same weight."""
    weights = _weights(model)
    # Kernels without a name cannot be told apart.
    running = {name: {kernel.name} for name, kernel in kernels.items() if kernel.name}
    # A weight in two precisions would be stored twice.
    firsts = _united([layer.name for layer in layers], (weights, running))
    members = Counter(firsts.values())
    groups = {name: first if members[first] > 1 else "" for name, first in firsts.items()}
    return tuple(
        replace(layer, group=groups[layer.name], weight=" ".join(weights.get(layer.name, ())))
        for layer in layers
    )


def _weights(model: Model) -> dict[str, list[str]]:
    """Return the names of each node's weights, of those that have some."""
    constants = initializers(model.proto.graph)
    found = {node.name: weights_of(node, constants) for node in model.proto.graph.node}
    return {name: [each.name for each in weights] for name, weights in found.items() if weights}


def _united(
    names: Sequence[str], relations: Iterable[Mapping[str, Iterable[str]]]
) -> dict[str, str]:
    """Return the first name of each name's group; a value that two names have ties them."""
    firsts = {name: name for name in names}
    place = {name: index for index, name in enumerate(names)}
    for relation in relations:
        seen: dict[str, str] = {}
        for name in names:
            tied = {firsts[seen.setdefault(value, name)] for value in relation.get(name, ())}
            tied.add(firsts[name])
            if len(tied) > 1:
                first = min(tied, key=place.__getitem__)
                firsts |= {each: first for each, its in firsts.items() if its in tied}
    return firsts

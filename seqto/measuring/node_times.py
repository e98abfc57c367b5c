"""What a profile says of the float model's nodes: each kernel's time belongs to one of them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from seqto.types import KernelTime, Profile

_INTO_INTEGERS = ("QuantizeLinear", "DynamicQuantizeLinear")
Step = Callable[[str], Sequence[str]]
"""From a kernel to its neighbours in one direction."""

_SUFFIX = "_quant"
"""What ONNX Runtime appends to a layer's name when it makes it an integer operation."""


@dataclass(frozen=True)
class NodeTimes:
    """The milliseconds of nodes by name, which of them pass on integers, and what is left over.

    Conversions that the runtime inserts belong to the layer that needs them. Nodes that run as a
    part of another one have no time of their own.
    """

    ms: Mapping[str, float]
    integers: frozenset[str]
    kinds: Mapping[str, str]
    """The operation that runs each of them."""
    rest_ms: float


def node_times(profile: Profile, layers: Collection[str], nodes: Collection[str]) -> NodeTimes:
    """Return the times of these nodes of the float model, some of which are layers."""
    owners = {each.name: _owner(each, layers, nodes) for each in profile}
    named = {each.name: each for each in profile}
    readers: dict[str, list[str]] = {each.name: [] for each in profile}
    for each in profile:
        for name in each.reads:
            if name in readers:
                readers[name].append(each.name)
    own = {owner: named[name] for name, owner in owners.items() if owner}
    spent, rest = dict.fromkeys(own, 0.0), 0.0
    for each in profile:
        paying = _paying(each, named, readers, owners)
        for owner in paying:
            spent[owner] += each.ms / len(paying)
        rest += 0.0 if paying else each.ms
    return NodeTimes(
        ms=spent,
        integers=frozenset(name for name, kernel in own.items() if kernel.passes_integers),
        kinds={name: kernel.op_type for name, kernel in own.items()},
        rest_ms=rest,
    )


def _owner(kernel: KernelTime, layers: Collection[str], nodes: Collection[str]) -> str:
    """Return the node that a kernel runs: a layer if one is among them; "" if it runs none."""
    run = [name.removesuffix(_SUFFIX) for name in kernel.nodes]
    found = [name for name in run if name in layers] or [name for name in run if name in nodes]
    return found[0] if found else ""


def _paying(
    kernel: KernelTime,
    named: Mapping[str, KernelTime],
    readers: Mapping[str, list[str]],
    owners: Mapping[str, str],
) -> list[str]:
    """Return the nodes that a kernel's time belongs to: its own, or those it converts for.

    Conversions into integers are for those that read them, all others are of those before them.
    """
    if owners[kernel.name]:
        return [owners[kernel.name]]

    def before(name: str) -> list[str]:
        return [each for each in named[name].reads if each in named]

    up, passed = _nearest(kernel.name, before, owners)
    into = any(named[each].op_type in _INTO_INTEGERS for each in (kernel.name, *passed))
    down, _ = _nearest(kernel.name, lambda name: readers[name], owners)
    return (down or up) if into else (up or down)


def _nearest(name: str, step: Step, owners: Mapping[str, str]) -> tuple[list[str], set[str]]:
    """Return the nearest nodes in one direction, and the kernels of no node in between."""
    found: dict[str, None] = {}
    passed: set[str] = set()
    pending = [name]
    while pending:
        for each in step(pending.pop()):
            if owners[each]:
                found[owners[each]] = None
            elif each not in passed:
                passed.add(each)
                pending.append(each)
    return list(found), passed

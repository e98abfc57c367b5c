"""What ONNX Runtime's profile says of a model's nodes."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from seqto.graph.kernels import landed_nodes
from seqto.graph.links import Links
from seqto.types import KernelTime, Model, Profile

_KERNEL = "_kernel_time"
_NARROW = {"int8", "uint8", "int16", "uint16"}
_QUIET = 25
"""The percentile of a kernel's times that counts: other work on the machine only adds to them."""


def profile_of(
    model: Model, optimized: onnx.GraphProto, events: Iterable[Mapping[str, Any]], warmup: int
) -> Profile:
    """Return the time of each kernel of the optimized graph, without the first `warmup` runs.

    `events` are those of ONNX Runtime's profile.
    """
    ran = _by_kernel(events)
    links, nodes = Links(optimized), defaultdict[str, list[str]](list)
    for name, kernel in landed_nodes(model, optimized).items():
        nodes[kernel.name].append(name)
    return [
        KernelTime(
            name=node.name,
            op_type=node.op_type,
            ms=_quiet_ms(ran[node.name][warmup:]),
            nodes=tuple(nodes[node.name]),
            reads=tuple(dict.fromkeys(each.name for each in links.before(node))),
            passes_integers=_first_type(ran[node.name][-1]) in _NARROW,
        )
        for node in links.nodes
        if len(ran.get(node.name, ())) > warmup
    ]


def _by_kernel(events: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    found = defaultdict[str, list[Mapping[str, Any]]](list)
    for each in events:
        if each.get("cat") == "Node" and each["name"].endswith(_KERNEL):
            found[each["name"].removesuffix(_KERNEL)].append(each)
    return found


def _quiet_ms(events: Sequence[Mapping[str, Any]]) -> float:
    return float(np.percentile([each["dur"] for each in events], _QUIET)) / 1000


def _first_type(event: Mapping[str, Any]) -> str:
    """Return the type of the first output, such as uint8."""
    outputs = event["args"].get("output_type_shape") or [{}]
    return next(iter(outputs[0]), "")

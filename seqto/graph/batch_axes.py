"""Which axis of each input and output counts samples."""

import re
from collections.abc import Collection, Sequence

import onnx

from seqto.errors import ConfigError, ModelError, nearest
from seqto.graph.nodes import all_nodes, initializers, reads, subgraphs
from seqto.graph.tensors import Tensor
from seqto.types import BatchAxes

_BATCH = re.compile(r"n|b|bs|bsz|(\w*[_.])?batch(es)?([_.-]?\w*)", re.IGNORECASE)
_SEQUENCE = re.compile(
    r"t|(\w*[_.])?(seq|sequence|time|steps?|timesteps?|frames?|tokens?|len|length)([_.]\w*)?|seqlen",
    re.IGNORECASE,
)
_INVENTED = re.compile(r"unk__\d+|\w*_dim_\d+|\?|-1|None|")
"""Names that exporters and ONNX Runtime give to dimensions that they do not know."""

_RAGGED = ("NonMaxSuppression", "NonZero", "Unique", "Compress")
"""Operations whose number of results depends on the values that they get."""
_SIZES = ("Shape", "Size")


def input_axes(inputs: Sequence[Tensor], states: Collection[str], given: BatchAxes) -> BatchAxes:
    """Return the axis of the samples of each input; None if an input holds a single sample.

    What is given counts first, then the names of dimensions, then their order. States come last:
    in `[2, batch, 128]` the first axis counts layers.
    """
    found = {each.name: _given(each, given) for each in inputs if each.name in given}
    found |= {
        each.name: axis
        for each in inputs
        if each.name not in found and (axis := each.like(_BATCH)) is not None
    }
    for each in sorted(inputs, key=lambda each: each.name in states):
        if each.name not in found:
            names = batch_names(inputs, found)
            is_state = each.name in states
            found[each.name] = (
                _axis_of_state(each, names, _sizes(inputs, found))
                if is_state
                else _axis_of_input(each, names)
            )
    return {each.name: found[each.name] for each in inputs}


def _axis_of_input(tensor: Tensor, names: Collection[str]) -> int | None:
    if (axis := tensor.named(names)) is not None:
        return axis
    is_single = not tensor.shape or _SEQUENCE.fullmatch(tensor.dims[0])
    return None if is_single else 0


def _axis_of_state(
    tensor: Tensor, names: Collection[str], sizes: Collection[int | None]
) -> int | None:
    """Return the axis of a state that can have as many samples as the other inputs."""
    if (axis := tensor.named(names)) is not None:
        return axis
    # A state with three axes is an LSTM's: layers, samples, features.
    axes = (1, 0, 2) if len(tensor.shape) == 3 else range(len(tensor.shape))
    fixed: list[int | None] = [size for size in sizes if size is not None]
    wanted = fixed or [None, 1]
    for size in wanted:
        for axis in axes:
            if tensor.shape[axis] == size:
                return axis
    # Even where others are fixed, a state may be exported with a free axis for its samples.
    return next((axis for axis in axes if tensor.shape[axis] is None), None)


def batch_names(inputs: Sequence[Tensor], axes: BatchAxes) -> set[str]:
    """Return the names that the axes of the samples have."""
    found = {each.dims[axis] for each, axis in _with_axis(inputs, axes)}
    return {name for name in found if not _INVENTED.fullmatch(name)}


def _sizes(inputs: Sequence[Tensor], axes: BatchAxes) -> list[int | None]:
    return [each.shape[axis] for each, axis in _with_axis(inputs, axes)]


def _with_axis(inputs: Sequence[Tensor], axes: BatchAxes) -> list[tuple[Tensor, int]]:
    pairs = [(each, axes.get(each.name)) for each in inputs]
    return [(each, axis) for each, axis in pairs if axis is not None]


def fixed_batch(inputs: Sequence[Tensor], axes: BatchAxes) -> int | None:
    """Return how many samples the inputs take at a time, or None if any number."""
    fixed = {size for size in _sizes(inputs, axes) if size is not None}
    if len(fixed) > 1:
        listed = ", ".join(f"{each.spec} at axis {axis}" for each, axis in _with_axis(inputs, axes))
        some = _with_axis(inputs, axes)[-1][0].name
        raise ModelError(
            f"the model's inputs do not agree on the number of samples ({listed}): name the axes "
            f"that count samples with 'model.batch_axes={{{some}: 1}}' (null: none), fix an input "
            "with dataset.constants, or export the model with a free batch dimension."
        )
    if any(axis is None for axis in axes.values()):
        if fixed - {1}:
            whole = next(name for name, axis in axes.items() if axis is None)
            raise ModelError(
                f"the model takes {fixed.pop()} samples at a time, but its input {whole!r} has no "
                "axis for them: fix that input with dataset.constants, name its axis with "
                "model.batch_axes, or export the model with a batch of 1."
            )
        return 1
    return fixed.pop() if fixed else None


def output_axis(
    tensor: Tensor, names: Collection[str], fixed: int | None, is_ragged: bool, given: BatchAxes
) -> int | None:
    """Return the axis of the samples of an output; None if it has none, as behind an NMS."""
    if tensor.name in given:
        return _given(tensor, given)
    for axis in (tensor.named(names), tensor.like(_BATCH)):
        if axis is not None:
            return axis
    if is_ragged or (tensor.has_shape and not tensor.shape):
        return None
    if not tensor.has_shape:
        return 0
    return 0 if _may_be_samples(tensor.dims[0], tensor.shape[0], fixed) else None


def _may_be_samples(name: str, size: int | None, fixed: int | None) -> bool:
    """Tell whether an output's first axis may count samples."""
    if size is None:
        return bool(_INVENTED.fullmatch(name))
    # An exporter writes 1 where it has traced one sample.
    return size in (fixed, 1)


def ragged_outputs(graph: onnx.GraphProto) -> set[str]:
    """Return the outputs whose number of entries depends on the values of the inputs."""
    constants = set(initializers(graph))
    values = {each.name for each in graph.input} - constants
    ragged: set[str] = set()
    for node in graph.node:
        # A size is no value: many exports make an index with NonZero of a shape.
        if node.op_type in _SIZES:
            continue
        if any(name in values for name in reads(node)):
            values.update(node.output)
            if _is_ragged(node) or any(name in ragged for name in reads(node)):
                ragged.update(node.output)
    return ragged & {each.name for each in graph.output}


def _is_ragged(node: onnx.NodeProto) -> bool:
    inner = (each for graph in subgraphs(node) for each in all_nodes(graph))
    return any(each.op_type in _RAGGED for each in (node, *inner))


def check_names(given: BatchAxes, known: Collection[str]) -> None:
    """Raise if an axis is given for what is neither an input nor an output."""
    for name in given:
        if name not in known:
            raise ConfigError(
                f"model.batch_axes has {name!r}{nearest(name, known)}, but the model's inputs and "
                f"outputs are {', '.join(known)}."
            )


def _given(tensor: Tensor, given: BatchAxes) -> int | None:
    """Return the axis that users name; negative ones count from the end."""
    axis, count = given[tensor.name], len(tensor.shape)
    if axis is None or not tensor.has_shape:
        return axis
    if isinstance(axis, bool) or not isinstance(axis, int) or not -count <= axis < count:
        raise ConfigError(
            f"model.batch_axes has {axis!r} for {tensor.spec}, which is none of its {count} "
            "axes: give the number of one, counted from 0, or null if no axis counts samples."
        )
    return axis % count

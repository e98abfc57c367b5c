"""How a model is fed, and which of its outputs are compared: what its graph and users say."""

import logging
from collections.abc import Collection, Mapping, Sequence

from seqto.errors import ConfigError, ModelError, nearest
from seqto.graph.batch_axes import (
    batch_names,
    check_names,
    fixed_batch,
    input_axes,
    other_names,
    output_axis,
    ragged_outputs,
)
from seqto.graph.fixed_outputs import fixed_outputs
from seqto.graph.states import can_start, continued_states
from seqto.graph.tensors import Tensor, input_tensors, output_tensors
from seqto.types import BatchAxes, Interface, Model, Reading, TensorSpec

_log = logging.getLogger(__name__)


def interface_of(model: Model, reading: Reading | None = None) -> Interface:
    """Return how a model is fed and read; what `reading` says comes before what the graph tells.

    The model has its constants already, by `seqto.graph.constants`.
    """
    reading = reading or Reading()
    inputs, outputs = input_tensors(model), output_tensors(model)
    _require_feedable(inputs)
    check_names(reading.batch_axes, [each.name for each in (*inputs, *outputs)])
    states = continued_states(inputs, outputs)
    axes = input_axes(inputs, states, reading.batch_axes)
    compared = _compared(model, outputs, states, reading.outputs)
    batch = fixed_batch(inputs, axes)
    ragged = ragged_outputs(model.proto.graph)
    names = batch_names(inputs, axes), other_names(inputs, axes)
    output_axes = {
        each.name: output_axis(each, *names, batch, each.name in ragged, reading.batch_axes)
        for each in compared
    }
    started = [each for each in inputs if each.name in states and can_start(each, axes[each.name])]
    return Interface(
        inputs=tuple(_fed(each, axes) for each in inputs if each not in started),
        states=tuple(_started(each, axes) for each in started),
        batch_axes=axes,
        outputs=output_axes,
        fixed_batch=_with_outputs(batch, compared, output_axes, names[0]),
    )


def _require_feedable(inputs: Sequence[Tensor]) -> None:
    for each in inputs:
        if not each.has_shape:
            raise ModelError(
                f"the model's input {each.name!r} has no shape, so it cannot be fed: export the "
                "model with shapes, or fix the input with dataset.constants."
            )
        if each.spec.dtype == "object":
            raise ModelError(
                f"the model's input {each.name!r} takes texts as they are, and layers are "
                "calibrated with numbers: export the model from behind the part that turns texts "
                "into numbers, or fix the input with dataset.constants."
            )


def _compared(
    model: Model,
    outputs: Sequence[Tensor],
    states: Mapping[str, str],
    wanted: Sequence[str] | None,
) -> list[Tensor]:
    """Return the outputs to compare: those that users name, else all but states."""
    known = [each.name for each in outputs]
    constant = fixed_outputs(model.proto.graph)
    if wanted is None:
        left_out = {*states.values(), *constant}
        chosen = [each for each in outputs if each.name not in left_out]
        _warn(
            "are no tensors, and are not compared (of scikit-learn, export them as one: "
            "options={'zipmap': False})",
            [each.name for each in model.proto.graph.output if each.name not in known],
        )
        _warn("are the same for all samples, and are not compared", sorted(constant))
    else:
        _check_outputs(wanted, [name for name in known if name not in constant])
        by_name = {each.name: each for each in outputs}
        chosen = [by_name[name] for name in dict.fromkeys(wanted)]
    if not chosen:
        raise ModelError(
            f"{model.name} has no output that can be compared: export it with one that is a tensor."
        )
    return chosen


def _warn(what: str, outputs: Sequence[str]) -> None:
    if outputs:
        _log.warning("The model's outputs %s %s.", ", ".join(outputs), what)


def _check_outputs(wanted: Sequence[str], known: Sequence[str]) -> None:
    listed = ", ".join(known)
    if not wanted:
        raise ConfigError(f"model.outputs is empty: choose from {listed}, or leave it null.")
    for name in wanted:
        if name not in known:
            raise ConfigError(
                f"model.outputs has {name!r}{nearest(name, known)}, which is no output of the "
                f"model that can be compared. Choose from {listed}."
            )


def _with_outputs(
    batch: int | None, outputs: Sequence[Tensor], axes: BatchAxes, names: Collection[str]
) -> int | None:
    """Return how many samples run at a time, as the outputs have to be told apart by sample."""
    for each in outputs:
        axis = axes[each.name]
        is_whole = axis is None
        if is_whole and batch not in (None, 1):
            raise ModelError(
                f"the model takes {batch} samples at a time, but its output {each.spec} has no "
                "axis for them, so it cannot be told what belongs to which sample: choose other "
                "outputs with model.outputs, or export the model with a batch of 1."
            )
        if batch is None and (axis is None or each.shape[axis : axis + 1] == (1,)):
            batch = 1
        # As in CLIP, where each image is compared with each text: alone, with its own.
        if batch is None and sum(name in names for name in each.dims) > 1:
            batch = 1
    return batch


def _fed(tensor: Tensor, axes: BatchAxes) -> TensorSpec:
    """Return an input as datasets give it, the axis of the samples first."""
    axis = axes[tensor.name]
    size = 1 if axis is None else tensor.shape[axis]
    others = [each for at, each in enumerate(tensor.shape) if at != axis]
    return TensorSpec(tensor.name, (size, *others), tensor.spec.dtype)


def _started(tensor: Tensor, axes: BatchAxes) -> TensorSpec:
    """Return a state at its start: a cache that grows is empty."""
    spec = _fed(tensor, axes)
    batch, *others = spec.shape
    return TensorSpec(spec.name, (batch, *(each or 0 for each in others)), spec.dtype)

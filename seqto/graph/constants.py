"""Inputs that have the same value in every inference become constants of the model."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from seqto.errors import ConfigError, nearest
from seqto.graph.branches import inline_branches
from seqto.graph.load import input_specs
from seqto.types import Model, TensorSpec


def with_constants(model: Model, constants: Mapping[str, Any]) -> Model:
    """Return the model with these inputs fixed: a value, or a list of the input's shape.

    An If that depends on them alone is replaced by the branch that it takes.
    """
    if not constants:
        return model
    specs = {spec.name: spec for spec in input_specs(model)}
    values = {name: _value(_known(name, specs), given) for name, given in constants.items()}
    proto = model.copy_proto()
    graph = proto.graph
    sizes = _sizes([each for each in graph.input if each.name in values], values)
    kept = [each for each in graph.input if each.name not in values]
    del graph.input[:]
    graph.input.extend(kept)
    graph.initializer.extend(numpy_helper.from_array(each, name) for name, each in values.items())
    # From IR version 4 on, an initializer need not be an input.
    proto.ir_version = max(proto.ir_version, 4)
    _fix_dimensions(graph, sizes)
    inline_branches(proto)
    return Model(model.name, proto, model.session)


def _known(name: str, specs: Mapping[str, TensorSpec]) -> TensorSpec:
    if name not in specs:
        raise ConfigError(
            f"dataset.constants has {name!r}{nearest(name, specs)}, but the model's inputs are "
            f"{', '.join(map(str, specs.values()))}."
        )
    if len(specs) == 1:
        raise ConfigError(
            f"dataset.constants has {name!r}, the model's only input: there is nothing left that "
            "differs from sample to sample."
        )
    return specs[name]


def _value(spec: TensorSpec, given: Any) -> np.ndarray:
    """Return a constant in the type and shape of its input; a single value fills a fixed shape."""
    try:
        found = np.asarray(given)
    except ValueError as error:
        raise _misfit(spec, given, "its rows differ in length") from error
    value = _typed(found, spec, given)
    if value.ndim == 0 and None not in spec.shape:
        return np.full([each or 0 for each in spec.shape], value)
    pairs = zip(spec.shape, value.shape, strict=False)
    if value.ndim != len(spec.shape) or any(want not in (None, got) for want, got in pairs):
        raise _misfit(spec, given, f"it has the shape {list(value.shape)}")
    return value


def _typed(found: np.ndarray, spec: TensorSpec, given: Any) -> np.ndarray:
    wanted = np.dtype(spec.dtype)
    kinds = {"f": "fiu", "i": "iu", "u": "iu", "b": "b"}.get(wanted.kind, "")
    if found.dtype.kind not in kinds:
        raise _misfit(spec, given, f"its values are of type {found.dtype.name}")
    if wanted.kind in "iu" and found.size:
        limits = np.iinfo(wanted)
        if int(found.min()) < limits.min or int(found.max()) > limits.max:
            raise _misfit(spec, given, f"{spec.dtype} goes from {limits.min} to {limits.max}")
    return found.astype(wanted)


def _misfit(spec: TensorSpec, given: Any, why: str) -> ConfigError:
    shown = repr(given)
    return ConfigError(
        f"dataset.constants has {shown if len(shown) <= 60 else f'{shown[:60]}...'} for the model "
        f"input {spec}, which does not fit: {why}. Give a value of that type, or nested lists of "
        "that shape."
    )


def _sizes(
    inputs: Iterable[onnx.ValueInfoProto], values: Mapping[str, np.ndarray]
) -> dict[str, int]:
    """Return the sizes that the constants give to dimensions by their names."""
    return {
        dim.dim_param: size
        for each in inputs
        for dim, size in zip(each.type.tensor_type.shape.dim, values[each.name].shape, strict=True)
        if dim.dim_param
    }


def _fix_dimensions(graph: onnx.GraphProto, sizes: Mapping[str, int]) -> None:
    """Give dimensions of these names their sizes: the same name is the same size everywhere."""
    for value in (*graph.input, *graph.output, *graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]

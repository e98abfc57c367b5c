"""Ranges of activations, as ONNX Runtime's MinMax calibrator finds them, at a third of its cost."""

import math
from collections.abc import Collection

import numpy as np
import onnx

from seqto.graph.inner import with_outputs
from seqto.graph.layers import FLOAT_TYPES
from seqto.graph.sessions import run_named, single_session
from seqto.phases import counted
from seqto.types import Arrays, Model, Ranges, Samples


def minmax_ranges(
    model: Model, samples: Samples, op_types: Collection[str], *, symmetric: bool
) -> Ranges:
    """Return the least and greatest value of every activation around these operations.

    Expects a model with the types of its tensors. ORT's calibrator finds the extremes inside an
    unoptimized graph; here the activations are outputs of an optimized one. The ranges are the same
    except for float rounding. NaN counts as it does there: a tensor whose first value is NaN has no
    range in this sample, and none at all if this is the first sample. NaN elsewhere is ignored.
    """
    names = _calibrated(model.proto.graph, op_types)
    given = {each.name for each in model.proto.graph.input}
    # An input that is also an output may be returned by ORT in memory that is already freed.
    outputs = [name for name in names if name not in given]
    session = single_session(with_outputs(model, outputs))
    found: dict[str, tuple[float, float]] = {}
    batches = math.ceil(len(samples) / (samples.fixed_batch or 1))
    for inputs in counted("calibrating", samples.batches(1), batches):
        # One sample at a time, because all its activations are in memory at once.
        values: Arrays = {**inputs, **run_named(session, outputs, inputs)}
        for name in names:
            low, high = _extremes(values[name])
            # With the arguments in this order, min and max ignore a new NaN.
            before = found.get(name, (low, high))
            found[name] = min(before[0], low), max(before[1], high)
    if symmetric:
        found = {name: _symmetric(*extremes) for name, extremes in found.items()}
    return found


def _calibrated(graph: onnx.GraphProto, op_types: Collection[str]) -> list[str]:
    """Return the float tensors that these operations read or write, except constants."""
    known = {
        value.name: value.type.tensor_type.elem_type
        for value in (*graph.value_info, *graph.output, *graph.input)
    }
    constants = {each.name for each in graph.initializer}
    around = {
        name
        for node in graph.node
        if node.op_type in op_types
        for name in (*node.input, *node.output)
    }
    return sorted(name for name in around - constants if known.get(name) in FLOAT_TYPES)


def _extremes(values: np.ndarray) -> tuple[float, float]:
    """Return the least and greatest value, as ORT's ReduceMin and ReduceMax do."""
    # For an empty tensor they are the infinities.
    low, high = np.min(values, initial=np.inf), np.max(values, initial=-np.inf)
    if np.isnan(low) and not np.isnan(values.flat[0]):
        low, high = np.fmin.reduce(values, axis=None), np.fmax.reduce(values, axis=None)
    return float(low), float(high)


def _symmetric(low: float, high: float) -> tuple[float, float]:
    most = max(abs(low), abs(high))
    return -most, most

"""Weights rounded with what samples taught: their integers, and what they shift biases by."""

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper

from seqto.graph.codebooks import narrowest
from seqto.graph.corrections import correct_biases
from seqto.graph.feedback import Factors, fed_back
from seqto.graph.layers import reduced_axes
from seqto.graph.nodes import initializers
from seqto.graph.packing import LEVELS, Rounded, rounded
from seqto.graph.patches import as_rows, from_rows, input_of
from seqto.types import INT8, INT16, Learned, Model

_KEPT_BYTES = 2**28
"""How many bytes of integers are kept for other candidates."""

_DIGITS = 12
"""Shifts are rounded to so many bits: machines add up in another order, which no file must show."""

_UNBOUNDED = (-np.inf, np.inf)


def factors_key(part: int, weight: str) -> str:
    """Return what the integers of a part of a weight's factors are kept under."""
    return f"factors {part} {weight}"


def units_key(part: int, weight: str) -> str:
    """Return what the units of a part of a weight's factors are kept under."""
    return f"units {part} {weight}"


def mean_key(layer: str) -> str:
    """Return what the mean of a layer's input is kept under."""
    return f"mean {layer}"


def shift_key(kind: str, layer: str) -> str:
    """Return what the shift of a layer's bias is kept under, rounded in a way of this name."""
    return f"shift {kind} {layer}"


@dataclass(frozen=True, eq=False)
class _Weight:
    """The weight of a layer, and along which axes it is summed."""

    tensor: onnx.TensorProto
    reduced: tuple[int, ...]
    groups: int

    @property
    def values(self) -> np.ndarray:
        return numpy_helper.to_array(self.tensor).astype(np.float32)


class LearnedWeights:
    """The stored weights of a model's layers, as far as samples taught how to round them.

    Each is rounded when a candidate needs it; the next one takes what is known. `precisions` are
    those that weights are stored in; other layers run in integers that somebody else rounds.
    """

    def __init__(self, model: Model, block: int, precisions: Collection[str], learn: bool) -> None:
        self._learned = model.learned if learn else {}
        self.block = block
        self._precisions = precisions
        self._weights = dict(_weights(model.proto.graph)) if self._learned else {}
        self._known: dict[tuple[str, str], np.ndarray] = {}
        self._kept = 0
        # Not cached by a decorator: that would keep the model alive.
        self.shift = functools.cache(self._shift)

    def integers(self, layer: str, precision: str) -> np.ndarray | None:
        """Return the integers of a layer's weight, in its form; None if they are the nearest."""
        weight = self._weights.get(layer) if precision in self._precisions else None
        if weight is None or factors_key(0, weight.tensor.name) not in self._learned:
            return None
        key = (weight.tensor.name, precision)
        if key not in self._known:
            found = self._chosen(weight, precision)
            if self._kept + found.nbytes > _KEPT_BYTES:
                return found
            self._known[key] = found
            self._kept += found.nbytes
        return self._known[key]

    def _shift(self, layer: str, precision: str) -> np.ndarray | None:
        """Return what rounding a layer's weight takes from its mean outputs, if that is known."""
        mean, weight = self._learned.get(mean_key(layer)), self._weights.get(layer)
        if mean is None or weight is None or precision not in self._precisions:
            return None
        values = weight.values
        nearest = rounded(values, precision, weight.reduced, self.block)
        chosen = self.integers(layer, precision)
        kept = nearest if chosen is None else Rounded(chosen, nearest.scales)
        lost = as_rows(values - kept.values, weight.reduced, weight.groups).astype(np.float64)
        shift = np.einsum("gnk,gk->gn", lost, mean.astype(np.float64)).reshape(-1)
        return _coarse(shift) if np.isfinite(shift).all() else None

    def correct(
        self, proto: onnx.ModelProto, precisions: Mapping[str, str], kinds: Mapping[str, str]
    ) -> None:
        """Shift the biases of these layers as was learned.

        `kinds` name the ways in which layers are rounded that run in integers.
        """
        shifts = {
            layer: self._learned.get(shift_key(kinds[layer], layer))
            if layer in kinds
            else self.shift(layer, precision)
            for layer, precision in precisions.items()
        }
        known = {layer: shift for layer, shift in shifts.items() if shift is not None}
        if known:
            correct_biases(proto.graph, known, precisions)

    def _chosen(self, weight: _Weight, precision: str) -> np.ndarray:
        values = weight.values
        factors = _factors(self._learned, weight.tensor.name)
        nearest = rounded(values, precision, weight.reduced, self.block)
        if not np.isfinite(values).all():
            return nearest.integers
        rows, scales = (
            as_rows(each, weight.reduced, weight.groups) for each in (values, nearest.scales)
        )
        levels = LEVELS.get(precision, _UNBOUNDED)
        found = from_rows(fed_back(rows, scales, factors, *levels), weight.reduced, values.shape)
        return found.astype(narrowest(found))


def kinds_of(
    precisions: Mapping[str, str], kind: str, only: Collection[str] = ()
) -> dict[str, str]:
    """Return the layers that run in integers, all rounded in the way of this name.

    Those in `only` are stored: their int16 is no int8 with finer activations.
    """
    return {
        layer: kind
        for layer, precision in precisions.items()
        if precision == INT8 or (precision == INT16 and layer not in only)
    }


def _weights(graph: onnx.GraphProto) -> Sequence[tuple[str, _Weight]]:
    constants = initializers(graph)
    read = [(node, input_of(node, constants)) for node in graph.node]
    return [
        (node.name, _Weight(found[1], reduced_axes(node, found[1]), found[0].groups))
        for node, found in read
        if found is not None
    ]


def _factors(learned: Learned, weight: str) -> list[Factors]:
    """Return the factors of a weight, part by part."""
    found: list[Factors] = []
    while (packed := learned.get(factors_key(len(found), weight))) is not None:
        found.append(Factors.unpacked(packed, learned[units_key(len(found), weight)]))
    return found


def _coarse(values: np.ndarray) -> np.ndarray:
    """Return the values in a few digits."""
    mantissas, exponents = np.frexp(values)
    short = np.rint(np.ldexp(mantissas, _DIGITS))
    return np.asarray(np.ldexp(short, exponents - _DIGITS), np.float32)

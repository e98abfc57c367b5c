"""Models as plain arrays, for other processes and machines."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from seqto.graph.files import attach, stripped
from seqto.types import Model

NO_MODEL = Model("", onnx.ModelProto())
"""Stands where a model is sent apart."""


@dataclass(frozen=True)
class PackedModel:
    """A model as plain arrays, which processes of one machine can share."""

    name: str
    graph: np.ndarray
    weights: Mapping[int, np.ndarray]
    session: Mapping[str, str]
    learned: Mapping[str, np.ndarray]

    @classmethod
    def of(cls, model: Model) -> "PackedModel":
        """Return the model packed, however large it is."""
        light, weights = stripped(model.proto)
        apart = {at: _bytes(each) for at, each in weights.items()}
        return cls(model.name, _bytes(light), apart, dict(model.session), dict(model.learned))

    def unpacked(self) -> Model:
        """Return the model."""
        light = onnx.ModelProto.FromString(self.graph.tobytes())
        weights = {
            at: onnx.TensorProto.FromString(each.tobytes()) for at, each in self.weights.items()
        }
        return Model(self.name, attach(light, weights), dict(self.session), dict(self.learned))


def _bytes(message: Any) -> np.ndarray:
    return np.frombuffer(message.SerializeToString(deterministic=True), np.uint8)

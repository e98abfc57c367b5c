"""What the inputs and outputs of a model are, and what users say about it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seqto.errors import ConfigError
from seqto.types.onnx_model import TensorSpec

BatchAxes = Mapping[str, int | None]
"""The axis that counts samples, by the name of an input or output; None is for no such axis."""


@dataclass(frozen=True)
class Reading:
    """What users say about how a model is fed and read, instead of what its graph tells.

    `outputs` are those to compare, `batch_axes` the axes that count samples, and `constants` the
    inputs that have the same value in every inference.
    """

    outputs: Sequence[str] | None = None
    batch_axes: BatchAxes = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what is no list of names, and what has no names."""
        if self.outputs is not None and not _is_names(self.outputs):
            raise ConfigError(
                f"model.outputs={self.outputs} has to be a list of names, such as "
                "'model.outputs=[boxes,scores]'."
            )
        _require_names("model.batch_axes", self.batch_axes, "{state: 1}")
        _require_names("dataset.constants", self.constants, "{sr: 16000}")


def _is_names(given: object) -> bool:
    if isinstance(given, str) or not isinstance(given, Sequence):
        return False
    return all(isinstance(each, str) for each in given)


def _require_names(key: str, given: object, example: str) -> None:
    if not isinstance(given, Mapping):
        raise ConfigError(f"{key}={given} has to be values by name, such as '{key}={example}'.")


@dataclass(frozen=True)
class Interface:
    """How a model is fed, and which of its outputs are compared.

    `inputs` are to be filled by a dataset. `states` are recurrent states and caches, which start at
    zero unless the dataset has them; their free dimensions have length 0 at the start. Both have
    the axis of the samples first, wherever the model has it: `batch_axes` tells that. An input
    without such an axis is fed whole, one sample at a time. `outputs` has the axis of each compared
    output; without one, an output belongs to a single sample as a whole. `fixed_batch` is how many
    samples the model takes at a time, or None if it takes any number.
    """

    inputs: tuple[TensorSpec, ...]
    states: tuple[TensorSpec, ...]
    batch_axes: BatchAxes
    outputs: BatchAxes
    fixed_batch: int | None

"""The inputs and outputs of a graph, with the names of their dimensions."""

import re
from collections.abc import Collection
from dataclasses import dataclass

import onnx

from seqto.graph.load import input_specs, spec_of
from seqto.types import Model, TensorSpec


@dataclass(frozen=True)
class Tensor:
    """An input or output; `dims` are the names of its dimensions, "" where one has none.

    Where the graph does not even tell how many dimensions there are, `has_shape` is False.
    """

    spec: TensorSpec
    dims: tuple[str, ...]
    has_shape: bool

    @property
    def name(self) -> str:
        """The name of the tensor."""
        return self.spec.name

    @property
    def shape(self) -> tuple[int | None, ...]:
        """The sizes of the dimensions; None is a free one."""
        return self.spec.shape

    def named(self, names: Collection[str]) -> int | None:
        """Return the first axis that has one of these names."""
        return next((axis for axis, dim in enumerate(self.dims) if dim and dim in names), None)

    def like(self, pattern: re.Pattern[str]) -> int | None:
        """Return the first axis whose name matches as a whole."""
        return next((axis for axis, dim in enumerate(self.dims) if pattern.fullmatch(dim)), None)


def input_tensors(model: Model) -> tuple[Tensor, ...]:
    """Return the inputs that the model must be given."""
    values = {each.name: each for each in model.proto.graph.input}
    return tuple(_tensor(spec, values[spec.name]) for spec in input_specs(model))


def output_tensors(model: Model) -> tuple[Tensor, ...]:
    """Return the outputs that are tensors; the others, such as maps, cannot be compared."""
    values = [each for each in model.proto.graph.output if is_tensor(each)]
    return tuple(_tensor(spec_of(each), each) for each in values)


def is_tensor(value: onnx.ValueInfoProto) -> bool:
    """Tell whether this is a tensor; an output without a type is taken for one."""
    return value.type.WhichOneof("value") in ("tensor_type", None)


def _tensor(spec: TensorSpec, value: onnx.ValueInfoProto) -> Tensor:
    tensor = value.type.tensor_type
    return Tensor(
        spec, tuple(each.dim_param for each in tensor.shape.dim), tensor.HasField("shape")
    )

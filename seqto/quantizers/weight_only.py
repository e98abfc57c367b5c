"""Weight-only quantization: weights in fewer bits, unpacked at load; the model runs in float."""

from dataclasses import field
from typing import Annotated

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from seqto.errors import ConfigError
from seqto.graph.files import compact
from seqto.graph.weights import STORED, store_into, stored_bytes
from seqto.quantizers.known import Memory
from seqto.quantizers.ort import (
    WEIGHT_OPS,
    find_layers,
    in_precisions,
    require_operations,
    require_precisions,
)
from seqto.types import (
    FLOAT16,
    FLOAT32,
    INT4,
    INT8,
    Candidate,
    Layer,
    Model,
    Ranges,
    Samples,
)


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class WeightOnlyQuantizer:
    """Makes files smaller; activations and speed are those of float. Needs no calibration."""

    name: str = "weight_only"
    op_types: list[str] | None = None
    exclude: list[str] = field(default_factory=list)
    block_size: Annotated[int, Field(ge=1)] = 32

    def __post_init__(self) -> None:
        """Refuse operations that have no weights."""
        require_operations(self.op_types, WEIGHT_OPS)
        self._memory = Memory()

    @property
    def precisions(self) -> tuple[str, ...]:
        """The precisions that a layer may have."""
        return (INT4, INT8, FLOAT16, FLOAT32)

    @property
    def batch_invariant(self) -> bool:
        """Activations are float, so a sample's outputs do not depend on its batch."""
        return True

    def prepare(self, model: Model) -> tuple[Model, tuple[Layer, ...]]:
        """Return the model unchanged, and its layers."""
        if self.op_types == []:
            raise ConfigError(
                "quantization.op_types=[] has no operation with weights: "
                f"name at least one of {', '.join(WEIGHT_OPS)}."
            )
        return model, find_layers(model, self.op_types or WEIGHT_OPS, self.exclude)

    def calibrate(self, model: Model, samples: Samples) -> Ranges:
        """Return no ranges: no activation is quantized."""
        return {}

    def quantize(self, model: Model, ranges: Ranges, candidate: Candidate) -> Model:
        """Return the model with its weights stored as the candidate says."""
        require_precisions(candidate, self.precisions, self.name)
        known = self._memory.of(model, repr(self))
        stored = in_precisions(candidate, STORED)
        if INT4 in stored.values():
            model = known.raised(lambda raised: raised)
        proto = model.copy_proto()
        store_into(proto, stored, self.block_size, known.packed)
        return Model(model.name, compact(proto, model))

    def stored_bytes(self, layer: Layer, precision: str) -> int:
        """Return about how many bytes of the model's file a layer takes in this precision."""
        return stored_bytes(layer, precision, self.block_size)

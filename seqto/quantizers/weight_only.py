"""Weight-only quantization: weights in fewer bits, mostly unpacked at load to run in float."""

from dataclasses import field
from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from seqto.errors import ConfigError
from seqto.graph.files import compact
from seqto.graph.layers import gemm_to_matmul, weight_layers
from seqto.graph.nbits import LEAST_WEIGHTS, block_of, matmuls, nbits_bytes
from seqto.graph.weights import RAISED, STORED, stored_bytes
from seqto.quantizers.known import Memory
from seqto.quantizers.learning import learn_weights
from seqto.quantizers.ort import (
    WEIGHT_OPS,
    find_layers,
    in_precisions,
    require_operations,
    require_precisions,
    with_storage,
)
from seqto.types import (
    CODED_STEPS,
    FLOAT16,
    FLOAT32,
    INT4,
    INT8,
    Candidate,
    Layer,
    Learned,
    Model,
    Ranges,
    Samples,
)

_NBITS_BYTES = 250
"""About how many bytes the names and numbers of a MatMulNBits take."""


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class WeightOnlyQuantizer:
    """Makes files smaller. Needs no calibration.

    With `feedback`, samples choose the integers of weights, and correct biases.

    With `kernels` unpacked, activations and speed are those of float. With nbits, each MatMul that
    ONNX Runtime can run as MatMulNBits is one in int4 and int8: faster, but it rounds activations
    and takes some bytes more. With auto, only large ones are, in int4, where that rounding is small
    beside the weights' own.

    Coded weights are integers of 1 to 10 bits, entropy-coded: the larger the step, the fewer.
    """

    name: str = "weight_only"
    op_types: list[str] | None = None
    exclude: list[str] = field(default_factory=list)
    block_size: Annotated[int, Field(ge=1)] = 32
    kernels: Literal["unpacked", "nbits", "auto"] = "unpacked"
    feedback: bool = True

    def __post_init__(self) -> None:
        """Refuse operations that have no weights."""
        require_operations(self.op_types, WEIGHT_OPS)
        self._memory = Memory()

    @property
    def precisions(self) -> tuple[str, ...]:
        """The precisions that a layer may have."""
        return (*CODED_STEPS, INT4, INT8, FLOAT16, FLOAT32)

    @property
    def batch_invariant(self) -> bool:
        """No activation is rounded together with those of another sample."""
        return True

    def prepare(self, model: Model) -> tuple[Model, tuple[Layer, ...]]:
        """Return the model, with the Gemms that may be MatMulNBits as MatMul, and its layers."""
        if self.op_types == []:
            raise ConfigError(
                "quantization.op_types=[] has no operation with weights: "
                f"name at least one of {', '.join(WEIGHT_OPS)}."
            )
        ops = self.op_types or WEIGHT_OPS
        prepared = gemm_to_matmul(model, self._least()) if self._changes_gemms() else model
        # Found before, since op:Gemm means those that are MatMuls now, too.
        chosen = {layer.name for layer in find_layers(model, ops, self.exclude)}
        layers = tuple(each for each in find_layers(prepared, ops, ()) if each.name in chosen)
        if self.kernels == "nbits" and not self._nbits(prepared):
            raise ConfigError(
                f"quantization.kernels=nbits has no MatMul to run in {model.name!r}: it needs "
                "constant weights on the right, of a multiple of 32 rows, that nothing else reads. "
                "Choose kernels=auto or kernels=unpacked."
            )
        # MatMulNBits rounds activations as well, which steps of weights do not tell.
        stored = STORED if self.kernels == "unpacked" else (*CODED_STEPS, FLOAT16)
        return prepared, with_storage(prepared, layers, self.block_size, stored)

    def calibrate(self, model: Model, samples: Samples) -> Ranges:
        """Return no ranges: no activation is quantized."""
        return {}

    def learn(self, model: Model, ranges: Ranges, samples: Samples) -> Learned:
        """Return how to round weights so that the outputs suit these samples."""
        if not self.feedback:
            return {}
        layers = {each.name for each in weight_layers(model, self.op_types or WEIGHT_OPS)}
        return learn_weights(model, layers, samples, {})

    def quantize(self, model: Model, ranges: Ranges, candidate: Candidate) -> Model:
        """Return the model with its weights stored as the candidate says."""
        return self._made(model, candidate)

    def preview(self, model: Model, ranges: Ranges, candidate: Candidate) -> Model:
        """Return the model with its weights as they are once they are unpacked."""
        return self._made(model, candidate, plainly=self.kernels == "unpacked")

    def _made(self, model: Model, candidate: Candidate, plainly: bool = False) -> Model:
        require_precisions(candidate, self.precisions, self.name)
        known = self._memory.of(model, repr(self))
        stored = in_precisions(candidate, STORED)
        if RAISED & {*stored.values()}:
            model = known.raised(lambda raised: raised)
        proto = model.copy_proto()
        nbits = known.once("nbits", lambda: self._nbits(known.model))
        packed = {name for name in nbits & stored.keys() if self._runs_packed(stored[name])}
        weights = known.weights(self.block_size, self.feedback, (*CODED_STEPS, INT4, INT8))
        # As MatMulNBits, int8 is in blocks, and close enough.
        corrected = {
            name: each for name, each in stored.items() if (name in packed, each) != (True, INT8)
        }
        weights.correct(proto, corrected, {})
        known.store(proto, stored, weights, plainly, packed)
        return Model(model.name, compact(proto, brief=plainly))

    def stored_bytes(self, layer: Layer, precision: str) -> int:
        """Return about how many bytes of the model's file a layer takes in this precision."""
        runs = self._runs_packed(precision) and layer.op_type == "MatMul"
        block = block_of(layer.shape[1], precision, self.block_size) if runs else 0
        if block and layer.weight_bytes >= 4 * self._least():
            outputs, values = layer.shape
            return nbits_bytes(outputs, values, precision, block) + _NBITS_BYTES
        return stored_bytes(layer, precision, self.block_size)

    def _nbits(self, model: Model) -> set[str]:
        """Return the layers that may be MatMulNBits."""
        if self.kernels == "unpacked":
            return set()
        names = [layer.name for layer in weight_layers(model, ["MatMul"])]
        return matmuls(model, names, self._least())

    def _runs_packed(self, precision: str) -> bool:
        """Return whether MatMuls of this precision are to be MatMulNBits."""
        wanted = {"unpacked": (), "auto": (INT4,), "nbits": (INT4, INT8)}
        return precision in wanted[self.kernels]

    def _least(self) -> int:
        return LEAST_WEIGHTS if self.kernels == "auto" else 0

    def _changes_gemms(self) -> bool:
        """Return whether Gemms may become MatMuls: not if only one of both is to be a layer."""
        ops = self.op_types or WEIGHT_OPS
        return self.kernels != "unpacked" and {"Gemm", "MatMul"} <= {*ops}

"""Static quantization: QuantizeLinear and DequantizeLinear pairs with calibrated ranges."""

import contextlib
import io
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import onnx
import onnxruntime
from onnx.version_converter import convert_version
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod
from onnxruntime.quantization.calibrate import CalibraterBase, TensorsData, create_calibrator
from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from seqto.errors import ConfigError, QuantizationError
from seqto.graph.coded_integers import code_integers, may_be_coded
from seqto.graph.files import changed, compact, save_model
from seqto.graph.float_layers import keep_in_float
from seqto.graph.layers import weight_layers
from seqto.graph.links import Links, sort_nodes
from seqto.graph.regions import better_in_float
from seqto.graph.shared_weights import read_apart
from seqto.graph.weights import INT4_OPSET, RAISED, own_weights, stored_bytes
from seqto.quantizers.known import Known, Memory
from seqto.quantizers.learned_weights import kinds_of
from seqto.quantizers.learning import RoundedWeight, learn_weights, roundings_of
from seqto.quantizers.mixtures import not_finite, too_mixed
from seqto.quantizers.ort import (
    QDQ_OPS,
    QUANT_TYPES,
    WEIGHT_OPS,
    IntegerType,
    clipped_for_branches,
    find_layers,
    in_precisions,
    left_by_ort,
    never_quantized,
    nodes_to_exclude,
    only_stored,
    require_operations,
    require_precisions,
    tensors_around,
    to_store,
    with_shapes,
    with_storage,
)
from seqto.quantizers.ranges import minmax_ranges
from seqto.quantizers.reuse import ReusingQDQQuantizer
from seqto.types import (
    CODED_STEPS,
    FLOAT16,
    FLOAT32,
    INT4,
    INT8,
    INT16,
    Arrays,
    Candidate,
    Layer,
    Learned,
    Model,
    Ranges,
    Samples,
    content_key,
)

_QDQ_BYTES = 1000
"""About how many bytes the names and nodes around a quantized layer take."""

_CODED_INT8 = 0.93
"""About which share of their bytes the integers of int8 layers take if they are coded."""

_METHODS = {
    "minmax": CalibrationMethod.MinMax,
    "percentile": CalibrationMethod.Percentile,
    "entropy": CalibrationMethod.Entropy,
}

# Options of quantize_static that are meant for calibrators, and their names there.
_CALIBRATOR_OPTIONS = {
    "CalibTensorRangeSymmetric": "symmetric",
    "CalibMovingAverage": "moving_average",
    "CalibMovingAverageConstant": "averaging_constant",
    "CalibPercentile": "percentile",
}


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class StaticQuantizer:
    """ONNX Runtime's QDQ quantizer, calibrated once for all candidates."""

    name: str = "static"
    per_channel: bool = True
    calibration: Literal["minmax", "percentile", "entropy"] = "minmax"
    percentile: float = Field(default=99.999, gt=50, le=100)
    activation_type: IntegerType = "uint8"
    weight_type: IntegerType = "int8"
    activation_symmetric: bool = False
    weight_symmetric: bool | None = None
    reduce_range: bool = False
    quantize_bias: bool = False
    keep_float: bool = True
    unweighted: Literal["auto", "int8"] = "auto"
    op_types: list[str] | None = None
    exclude: list[str] = field(default_factory=list)
    block_size: Annotated[int, Field(ge=1)] = 32
    feedback: bool = True
    coded_int8: bool = False
    session: dict[str, str] = field(default_factory=dict)
    extra_options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse operations that ONNX does not have."""
        # Not only those of ORT's registries: a QDQ pair fits around any operation.
        known = {schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}
        require_operations(self.op_types, known)
        self._memory = Memory()

    @property
    def precisions(self) -> tuple[str, ...]:
        """The precisions that a layer may have: int16 is int8 with 16-bit activations around it."""
        finer = () if "16" in self.activation_type else (INT16,)
        return (*CODED_STEPS, INT4, INT8, *finer, FLOAT16, FLOAT32)

    @property
    def batch_invariant(self) -> bool:
        """The ranges are fixed, so a sample's outputs do not depend on its batch."""
        return True

    def prepare(self, model: Model) -> tuple[Model, tuple[Layer, ...]]:
        """Return the model with shapes and the opset its types need, and its layers."""
        prepared = with_shapes(self._at_its_opset(model))
        quantized = self._layer_ops()
        if not quantized:
            raise ConfigError(
                f"quantization.op_types={self.op_types} has no operation with weights: "
                f"name at least one of {', '.join(WEIGHT_OPS)}."
            )
        layers = find_layers(prepared, quantized, self.exclude, QDQ_OPS)
        return prepared, with_storage(prepared, layers, self.block_size)

    def calibrate(self, model: Model, samples: Samples) -> Ranges:
        """Return the range of every activation over these samples."""
        if self.calibration == "minmax" and _CALIBRATOR_OPTIONS.keys().isdisjoint(
            self.extra_options
        ):
            return minmax_ranges(
                model, samples, self._quantized_ops(), symmetric=self.activation_symmetric
            )
        with (
            tempfile.TemporaryDirectory(prefix="seqto-calibration-") as folder,
            # ORT's histogram calibrators print for every sample.
            contextlib.redirect_stdout(io.StringIO()),
        ):
            calibrator = self._calibrator(model, Path(folder))
            for inputs in samples.batches(1):
                # One sample at a time: histogram calibrators hold all activations of their input.
                calibrator.collect_data(_OneBatch(inputs))
            data = calibrator.compute_data()
        return {
            name: (float(np.min(each.range_value[0])), float(np.max(each.range_value[1])))
            for name, each in sorted(data.items())
        }

    def learn(
        self,
        model: Model,
        ranges: Ranges,
        samples: Samples,
        others: Mapping[str, RoundedWeight] | None = None,
    ) -> Learned:
        """Return how to round weights so that the outputs suit these samples.

        Biases are shifted for `others`, the ways to round weights to int8; by default its own.
        """
        if not self.feedback:
            return {}
        layers = {each.name for each in weight_layers(model, self._layer_ops())}
        ways = self.roundings(model, ranges) if others is None else others
        return learn_weights(model, layers, samples, ways)

    def quantize(self, model: Model, ranges: Ranges, candidate: Candidate) -> Model:
        """Return the QDQ model of the int8 and int16 layers; the others run in float."""
        return self._made(model, ranges, candidate)

    def preview(self, model: Model, ranges: Ranges, candidate: Candidate) -> Model:
        """Return the same with stored weights as they are once they are unpacked."""
        return self._made(model, ranges, candidate, plainly=True)

    def _made(
        self, model: Model, ranges: Ranges, candidate: Candidate, plainly: bool = False
    ) -> Model:
        require_precisions(candidate, self.precisions, self.name)
        known = self._memory.of(model, repr(self))
        only = known.once("only", lambda: self._only_stored(known.model))
        fine = in_precisions(candidate, (INT16,)).keys() - only
        stored = to_store(candidate, only)
        integers = in_precisions(candidate, (INT8, INT16)).keys() - only
        codes = self.coded_int8 and not plainly and may_be_coded(known.model, integers)
        if fine or codes or RAISED & {*stored.values()}:
            model = known.raised(with_shapes)
        proto = model.copy_proto()
        weights = known.weights(self.block_size, self.feedback)
        precisions = dict(candidate.precisions)
        weights.correct(proto, precisions, kinds_of(precisions, self._kind(), only))
        # ORT would make all layers that share a weight read its quantized form.
        own_weights(proto, stored)
        excluded: list[str] = []
        if integers:
            excluded = self._in_float(known, model, ranges, candidate)
            proto = self._with_integers(known, model, proto, ranges, excluded, fine)
            stored |= left_by_ort(proto.graph, candidate)
        known.store(proto, stored, weights, plainly)
        read_apart(proto.graph)
        if self.keep_float and excluded:
            keep_in_float(proto, excluded)
        if codes:
            code_integers(proto)
        return Model(model.name, compact(proto, brief=plainly), self.session)

    def _in_float(
        self, known: Known, model: Model, ranges: Ranges, candidate: Candidate
    ) -> list[str]:
        """Return the nodes that stay in float."""
        only = known.once("only", lambda: self._only_stored(known.model))
        never = known.once("never", lambda: self._never(known.model))
        links = known.links(model)
        excluded = nodes_to_exclude(links, candidate, never, only)
        layers = {*never, *(name for name, _ in candidate.precisions)}
        unweighted = known.once(("unweighted", id(model)), lambda: self._unweighted(model))
        others = self._by_ranges(links, ranges, layers)
        return excluded + sorted({*unweighted, *others} - set(excluded))

    def _with_integers(
        self,
        known: Known,
        model: Model,
        proto: onnx.ModelProto,
        ranges: Ranges,
        excluded: list[str],
        fine: Collection[str],
    ) -> onnx.ModelProto:
        """Return the model with QDQ pairs around all nodes that are not excluded."""
        try:
            quantizer = ReusingQDQQuantizer(
                known,
                proto,
                self.per_channel,
                self.reduce_range,
                QUANT_TYPES[self.weight_type],
                QUANT_TYPES[self.activation_type],
                _tensors_data(ranges),
                [],
                excluded,
                self._quantized_ops(),
                self._options(set(ranges) & tensors_around(known.links(model), fine)),
            )
            quantizer.quantize_model()
            # ORT sorts nodes only when it saves a file; unsorted, the graph is not valid ONNX.
            quantizer.model.topological_sort()
            sort_nodes(quantizer.model.model.graph)
        except Exception as error:  # ORT's own errors have no common base but Exception.
            raise QuantizationError(
                f"ONNX Runtime cannot quantize model {model.name!r} statically: {error}. "
                "Try other types, quantization.op_types, or quantization.exclude."
            ) from error
        made: onnx.ModelProto = quantizer.model.model
        return made

    def stored_bytes(self, layer: Layer, precision: str) -> int:
        """Return about how many bytes of the model's file a layer takes in this precision."""
        if precision not in (INT8, INT16) or layer.only_stored:
            return stored_bytes(layer, precision, self.block_size)
        outputs, values = layer.shape
        wide = 2 if "16" in self.weight_type else 1
        # Scale and zero point of the weight, and then of the bias, which stays 32 bits wide.
        each = 4 + wide + (8 if self.quantize_bias and layer.op_type != "MatMul" else 0)
        integers = outputs * values * wide
        if self.coded_int8 and wide == 1:
            integers = round(_CODED_INT8 * integers)
        return integers + (outputs if self.per_channel else 1) * each + _QDQ_BYTES

    def roundings(self, model: Model, ranges: Ranges) -> dict[str, RoundedWeight]:
        """Return how ORT rounds the weights of int8 layers, under the name of this way."""
        every = {each.name for each in weight_layers(model, self._layer_ops())}
        # Coded integers are the same, but cannot be read.
        plain = replace(self, coded_int8=False) if self.coded_int8 else self
        return roundings_of(plain, model, ranges, every - self._never(model), self._kind())

    def _kind(self) -> str:
        """Return the name of the way in which the weights of int8 layers are rounded."""
        options = (self.per_channel, self.weight_type, self.weight_symmetric, self.reduce_range)
        way = content_key([*options, self.quantize_bias, repr(self.extra_options)])
        return f"{INT8}/{way}"

    def _at_its_opset(self, model: Model) -> Model:
        """Return the model in an opset that has the types to quantize to.

        As ORT's `update_opset_version`, whose arguments are others in each version.
        """
        if "16" not in self.weight_type + self.activation_type:
            return model if model.is_large else Model(model.name, model.copy_proto())
        if model.is_large:
            # ORT would convert it as one message, for which it is too large.
            return Model(model.name, changed(model.proto, _with_wide_integers))
        given = model.copy_proto()
        wide = _with_wide_integers(given)
        # What the conversion adds needs shapes, too.
        return model if wide is given else with_shapes(Model(model.name, wide))

    def _never(self, model: Model) -> set[str]:
        return never_quantized(weight_layers(model, self._layer_ops()), self.exclude)

    @property
    def _leaves_float(self) -> bool:
        """Whether operations without weights stay in float where 8 bits would spoil them."""
        # Who names the operations to quantize means just these.
        return self.unweighted == "auto" and not self.op_types

    def _unweighted(self, model: Model) -> set[str]:
        """Return the operations without weights that no candidate quantizes."""
        if not self._leaves_float:
            return set()
        layers = weight_layers(model, self._layer_ops())
        return better_in_float(model.proto.graph, {layer.name for layer in layers})

    def _by_ranges(self, links: Links, ranges: Ranges, layers: Collection[str]) -> set[str]:
        """Return the operations that cannot be quantized, or not without great loss."""
        mixed = too_mixed(links, ranges, layers) if self._leaves_float else []
        return {*mixed, *not_finite(links, ranges, layers), *clipped_for_branches(links)}

    def _layer_ops(self) -> list[str]:
        return [op for op in WEIGHT_OPS if op in (self.op_types or WEIGHT_OPS)]

    def _only_stored(self, model: Model) -> frozenset[str]:
        return only_stored(model, weight_layers(model, self._layer_ops()), QDQ_OPS)

    def _quantized_ops(self) -> list[str]:
        # Sorted: ORT's own default is a set, whose order changes from process to process.
        return self.op_types or sorted({*QLinearOpsRegistry, *QDQRegistry})

    def _options(self, fine: Collection[str]) -> dict[str, Any]:
        """Return ORT's options; `fine` are the activations to quantize to 16 bits."""
        options: dict[str, Any] = {
            "ActivationSymmetric": self.activation_symmetric,
            "QuantizeBias": self.quantize_bias,
        }
        if self.weight_symmetric is not None:
            options["WeightSymmetric"] = self.weight_symmetric
        options |= self.extra_options
        if fine:
            wide = QUANT_TYPES["int16" if self.activation_type == "int8" else "uint16"]
            # The user's own overrides come last, so that they win.
            options["TensorQuantOverrides"] = {
                name: [{"quant_type": wide}] for name in sorted(fine)
            } | options.get("TensorQuantOverrides", {})
        return options

    def _calibrator(self, model: Model, folder: Path) -> CalibraterBase:
        path, augmented = folder / "model.onnx", folder / "augmented.onnx"
        save_model(model, path)
        options: dict[str, Any] = {"symmetric": self.activation_symmetric}
        if self.calibration == "percentile":
            options["percentile"] = self.percentile
        for name, option in _CALIBRATOR_OPTIONS.items():
            if name in self.extra_options:
                options[option] = self.extra_options[name]
        calibrator = create_calibrator(
            path,
            self._quantized_ops(),
            augmented_model_path=str(augmented),
            calibrate_method=_METHODS[self.calibration],
            use_external_data_format=model.is_large,
            extra_options=options,
        )
        # ORT's own session takes all cores and spins on them: twice the CPU for the same work.
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = 1
        settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        calibrator.infer_session = onnxruntime.InferenceSession(
            augmented, settings, providers=["CPUExecutionProvider"]
        )
        return calibrator


def _with_wide_integers(proto: onnx.ModelProto) -> onnx.ModelProto:
    (given,) = (each.version for each in proto.opset_import if not each.domain)
    return proto if given >= INT4_OPSET else convert_version(proto, INT4_OPSET)


class _OneBatch(CalibrationDataReader):
    """A reader that gives one batch, as calibrators expect it."""

    def __init__(self, inputs: Arrays) -> None:
        self._pending: list[Arrays] = [inputs]

    def get_next(self) -> Arrays | None:
        """Return the batch, then None."""
        return self._pending.pop() if self._pending else None


def _tensors_data(ranges: Ranges) -> TensorsData:
    # New for each candidate, because ORT's quantizer changes the ranges that it is given.
    pairs: Mapping[str, tuple[np.float32, np.float32]] = {
        name: (np.float32(low), np.float32(high))
        for name, (low, high) in ranges.items()
        # Nothing reads infinite ranges: such activations stay in float.
        if np.isfinite([low, high]).all()
    }
    return TensorsData(CalibrationMethod.MinMax, dict(pairs))

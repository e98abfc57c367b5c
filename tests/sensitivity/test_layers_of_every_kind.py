"""Every sensitivity on tables, whose inputs are integers, and on recurrent layers."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from onnx import numpy_helper
from sequence_models import constant, reader, recurrent, texts, tied
from suite_quantizers import Prepared
from suite_sensitivities import scores_of

from seqto.graph.prepare import prepare
from seqto.protocols import Quantizer, Sensitivity
from seqto.quantizers.dynamic import DynamicQuantizer
from seqto.quantizers.static import StaticQuantizer
from seqto.quantizers.weight_only import WeightOnlyQuantizer
from seqto.sensitivity.divergence import DivergenceSensitivity
from seqto.sensitivity.local import LocalSensitivity
from seqto.sensitivity.paper import PaperSensitivity
from seqto.types import Model

MODELS: dict[str, Callable[[], Model]] = {
    "reader": reader,
    "tied": tied,
    "lstm": lambda: recurrent("LSTM"),
    "gru": lambda: recurrent("GRU"),
}
QUANTIZERS = [StaticQuantizer, DynamicQuantizer, WeightOnlyQuantizer]
SENSITIVITIES = [
    DivergenceSensitivity(),
    LocalSensitivity(),
    LocalSensitivity(metric="sqnr_delta"),
    LocalSensitivity(metric="mse"),
    LocalSensitivity(precisions=["int4", "int8", "float16", "float32"]),
    PaperSensitivity(),
]

EVERY_QUANTIZER = pytest.mark.parametrize("quantizer", QUANTIZERS)
EVERY_SENSITIVITY = pytest.mark.parametrize(
    "sensitivity", SENSITIVITIES, ids=lambda each: f"{each.name}-{getattr(each, 'metric', '')}"
)


def prepared(quantizer: Callable[[], Quantizer], model: Model) -> Prepared:
    floating = prepare(model)
    return Prepared(quantizer(), floating, texts(floating))


@EVERY_SENSITIVITY
@EVERY_QUANTIZER
@pytest.mark.parametrize("model", MODELS)
def test_every_kind_of_layer_has_a_finite_score(
    sensitivity: Sensitivity, quantizer: Callable[[], Quantizer], model: str
) -> None:
    found = prepared(quantizer, MODELS[model]())
    scores = scores_of(sensitivity, found)
    assert sorted(score.layer.name for score in scores) == sorted(found.names)
    numbers = [
        number
        for score in scores
        for number in (score.score, *score.details.values(), *score.costs.values())
    ]
    assert all(map(math.isfinite, numbers))


def with_a_huge_row_entry(model: Model) -> Model:
    """Return the model with one value in each row of its first table that drowns the others."""
    table = next(each for each in model.proto.graph.initializer if each.name == "table")
    values = constant(model, "table").copy()
    values[:, 0] = 1000 * np.sign(values[:, 0])
    table.CopyFrom(numpy_helper.from_array(values, "table"))
    # What follows ignores the huge value.
    mix = next(each for each in model.proto.graph.initializer if each.name == "mix_w")
    rows = constant(model, "mix_w").copy()
    rows[0] = 0
    mix.CopyFrom(numpy_helper.from_array(rows, "mix_w"))
    return model


@pytest.mark.parametrize("sensitivity", [DivergenceSensitivity(per_byte=False)])
def test_a_table_that_is_hard_to_quantize_comes_first(sensitivity: Sensitivity) -> None:
    found = prepared(WeightOnlyQuantizer, with_a_huge_row_entry(reader()))
    assert scores_of(sensitivity, found)[0].layer.name == "embed"
    plain = prepared(WeightOnlyQuantizer, reader())
    harm = {
        which: next(
            score.costs["int8"]
            for score in scores_of(sensitivity, each)
            if score.layer.name == "embed"
        )
        for which, each in (("hard", found), ("plain", plain))
    }
    assert harm["hard"] > 100 * harm["plain"]

"""Models of the patterns and the size of the paper's four, each through a whole short study."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from onnx_models import feeds, op_types, run
from tiny_studies import Lab
from zoo_models import ZOO, ZooModel, shufflenetv2

from seqto.datasets.generated import RandomDataset
from seqto.graph.prepare import prepare
from seqto.protocols import Quantizer
from seqto.quantizers.dynamic import DynamicQuantizer
from seqto.quantizers.static import StaticQuantizer
from seqto.search.budget import BudgetSearch
from seqto.search.ladder import LadderSearch
from seqto.sensitivity.divergence import DivergenceSensitivity
from seqto.sensitivity.paper import PaperSensitivity
from seqto.tracking.memory import MemoryTracker
from seqto.types import Model, TrialState

every_model = pytest.mark.parametrize("zoo", ZOO, ids=lambda zoo: zoo.name)


@pytest.fixture
def model(zoo: ZooModel) -> Iterator[Model]:
    """Make the model, and let its memory go."""
    yield zoo.make()


@every_model
def test_sizes_are_the_papers(zoo: ZooModel, model: Model) -> None:
    assert len(model.to_bytes()) / 2**20 == pytest.approx(zoo.mebibytes, rel=0.003)


@every_model
def test_preparation_upgrades_and_keeps_the_output(zoo: ZooModel, model: Model) -> None:
    assert model.proto.opset_import[0].version == zoo.opset
    prepared = prepare(model)
    assert prepared.proto.opset_import[0].version >= 13
    assert not {"BatchNormalization", "Shape", "Constant"} & set(op_types(prepared))
    inputs = feeds(model, 1)
    (wanted,), (found,) = run(model, inputs), run(prepared, inputs)
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3 * np.abs(wanted).max())


@pytest.mark.slow
@pytest.mark.parametrize(
    "quantizer", [StaticQuantizer(), DynamicQuantizer()], ids=lambda each: each.name
)
@every_model
def test_a_short_study(zoo: ZooModel, model: Model, quantizer: Quantizer, tmp_path: Path) -> None:
    lab = Lab.at(
        tmp_path,
        model,
        dataset=RandomDataset(calibration_size=2, evaluation_size=4),
        quantizer=quantizer,
        sensitivity=PaperSensitivity(samples=1),
        search=LadderSearch(maximum=1),
    )
    assert len(lab.subject.layers) == zoo.layers
    outcome = lab.run(MemoryTracker(), register_models=False)
    assert len({score.layer.name for score in outcome.record.scores}) == zoo.layers
    full, excluding = outcome.record.trials
    assert full.state is excluding.state is TrialState.COMPLETE
    assert full.candidate.excluded == () and len(excluding.candidate.excluded) == 1
    assert 0.24 < full.metrics["size_ratio"] < 0.30
    assert full.metrics["size_ratio"] < excluding.metrics["size_ratio"] < 1
    assert full.metrics["divergence"] > 0


@pytest.mark.slow
def test_a_shuffled_network_is_studied_the_default_way(tmp_path: Path) -> None:
    lab = Lab.at(
        tmp_path,
        shufflenetv2(),
        dataset=RandomDataset(calibration_size=2, evaluation_size=4),
        sensitivity=DivergenceSensitivity(samples=2),
        search=BudgetSearch(budgets=3, screens=2, evaluations=3),
    )
    outcome = lab.run(MemoryTracker(), register_models=False)
    costs = [score.costs["int8"] for score in outcome.record.scores]
    assert len(costs) == 57 and min(costs) > 0
    full, *others = outcome.record.trials
    assert others and all(each.state.is_settled for each in (full, *others))
    assert full.state is TrialState.COMPLETE
    assert not any(each.candidate.is_float for each in others)

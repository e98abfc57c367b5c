"""What every sensitivity must do; the test of each one subclasses this."""

import json
import math
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from onnx_models import observed, residual
from quantizable_models import random_samples
from suite_quantizers import Prepared, prepared_residual

from seqto.graph.prepare import prepare
from seqto.protocols import Quantizer, Sensitivity, Task
from seqto.quantizers.dynamic import DynamicQuantizer
from seqto.quantizers.static import StaticQuantizer
from seqto.sensitivity.stability import stability
from seqto.tasks.classification import Classification
from seqto.types import Layer, LayerScore


def scores_of(
    sensitivity: Sensitivity, prepared: Prepared, task: Task | None = None
) -> tuple[LayerScore, ...]:
    """Return the layers of this model, the most hurt first."""
    return sensitivity.score(
        prepared.model,
        prepared.layers,
        prepared.quantizer,
        prepared.ranges,
        prepared.samples,
        observed(prepared.model),
        task or Classification(),
    )


class SensitivitySuite:
    """Subclasses give the fixture `sensitivity`."""

    @pytest.fixture
    def sensitivity(self) -> Sensitivity:
        """Return the sensitivity to test."""
        raise NotImplementedError

    @pytest.fixture(params=[StaticQuantizer, DynamicQuantizer])
    def prepared(self, request: pytest.FixtureRequest) -> Prepared:
        """Return a model for each kind of quantization."""
        return prepared_residual(request.param())

    def test_has_a_name(self, sensitivity: Sensitivity) -> None:
        assert sensitivity.name

    def test_every_layer_has_one_score(self, sensitivity: Sensitivity, prepared: Prepared) -> None:
        scored = [score.layer for score in scores_of(sensitivity, prepared)]
        assert sorted(scored, key=lambda layer: layer.name) == sorted(
            prepared.layers, key=lambda layer: layer.name
        )

    def test_the_most_hurt_comes_first(self, sensitivity: Sensitivity, prepared: Prepared) -> None:
        values = [score.score for score in scores_of(sensitivity, prepared)]
        assert values == sorted(values, reverse=True)
        assert values[0] > values[-1]

    def test_scores_are_plain_numbers(self, sensitivity: Sensitivity, prepared: Prepared) -> None:
        for score in scores_of(sensitivity, prepared):
            numbers = [score.score, *score.details.values(), *score.costs.values()]
            assert all(type(number) is float and math.isfinite(number) for number in numbers)
            stored = json.loads(json.dumps(asdict(score)))
            assert LayerScore(Layer(**stored.pop("layer")), **stored) == score

    def test_costs_predict_the_harm_of_int8(
        self, sensitivity: Sensitivity, prepared: Prepared
    ) -> None:
        costs = [score.costs for score in scores_of(sensitivity, prepared)]
        assert all(each["int8"] >= 0 == each.get("float32", 0) for each in costs)
        assert max(each["int8"] for each in costs) > 0

    def test_bytes_saved_change_the_order_only_where_they_count(
        self, sensitivity: Sensitivity, prepared: Prepared
    ) -> None:
        plain, by_byte = (
            {score.layer: score for score in scores_of(each, prepared)}
            for each in (replace(sensitivity, per_byte=False), replace(sensitivity, per_byte=True))
        )
        wanted = {layer: plain[layer].score / layer.weight_bytes for layer in plain}
        largest = max(wanted.values())
        for layer, score in by_byte.items():
            assert score.score == pytest.approx(wanted[layer] / largest)
            assert score.costs == plain[layer].costs

    def test_each_half_of_the_samples_ranks_by_itself(
        self, sensitivity: Sensitivity, prepared: Prepared
    ) -> None:
        scores = scores_of(sensitivity, prepared)
        assert -1 <= (stability(scores) or -2) <= 1
        # As if there were no others; only the scale may differ.
        half = replace(sensitivity, samples=len(prepared.samples) // 2)
        alone = {score.layer: score.score for score in scores_of(half, prepared)}
        found = {score.layer: score.details["first_half"] for score in scores}
        for layer in found:
            assert found[layer] / max(found.values()) == pytest.approx(
                alone[layer] / max(alone.values())
            )

    def test_one_sample_has_no_halves(self, sensitivity: Sensitivity, prepared: Prepared) -> None:
        scores = scores_of(replace(sensitivity, samples=1), prepared)
        assert stability(scores) is None

    def test_same_model_has_the_same_scores(
        self, sensitivity: Sensitivity, prepared: Prepared
    ) -> None:
        assert scores_of(sensitivity, prepared) == scores_of(sensitivity, prepared)

    def test_what_it_is_given_stays_as_it_is(
        self, sensitivity: Sensitivity, prepared: Prepared
    ) -> None:
        model, ranges = prepared.model.to_bytes(), dict(prepared.ranges)
        scores_of(sensitivity, prepared)
        assert prepared.model.to_bytes() == model
        assert prepared.ranges == ranges

    @pytest.mark.parametrize("quantizer", [StaticQuantizer, DynamicQuantizer])
    def test_layers_never_to_quantize_have_no_score(
        self, sensitivity: Sensitivity, quantizer: type
    ) -> None:
        prepared = prepared_residual(quantizer(exclude=["left"]))
        names = {score.layer.name for score in scores_of(sensitivity, prepared)}
        assert names == {"stem", "right", "head"}

    def test_leaves_no_file_and_no_word_behind(
        self,
        sensitivity: Sensitivity,
        prepared: Prepared,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.chdir(tmp_path)
        capfd.readouterr()
        scores_of(sensitivity, prepared)
        assert list(tmp_path.iterdir()) == []
        assert capfd.readouterr() == ("", "")

    def test_a_single_layer_can_be_scored(self, sensitivity: Sensitivity) -> None:
        quantizer: Quantizer = StaticQuantizer(op_types=["Gemm"])
        floating = prepare(residual())
        prepared = Prepared(quantizer, floating, random_samples(floating))
        (score,) = scores_of(sensitivity, prepared)
        assert score.layer.name == "head"
        assert math.isfinite(score.score)

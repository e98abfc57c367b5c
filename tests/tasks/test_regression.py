"""Numbers that count by their size."""

import numpy as np
import pytest
from suite_tasks import TaskSuite, changed

from seqto.errors import DatasetError
from seqto.tasks.regression import Regression
from seqto.types import Outputs, Targets

DRAW = np.random.RandomState(0)
WAVES = DRAW.randn(20, 400)


class TestValues(TaskSuite):
    @pytest.fixture
    def task(self) -> Regression:
        return Regression()

    @pytest.fixture
    def reference(self) -> Outputs:
        return {"pose": np.random.RandomState(1).randn(20, 3)}

    @pytest.fixture
    def targets(self, reference: Outputs) -> Targets:
        if len(reference) == 1:
            return [entry + 0.01 for entries in reference.values() for entry in entries]
        return [{name: each[n] + 0.01 for name, each in reference.items()} for n in range(20)]

    @pytest.fixture
    def misfits(self) -> list[Outputs]:
        return [{"wrong": np.full((20, 3), "text")}]


class TestWaves(TestValues):
    @pytest.fixture
    def task(self) -> Regression:
        return Regression(name="audio", scale="sample")

    @pytest.fixture
    def reference(self) -> Outputs:
        return {"audio": WAVES}


class TestLengths(TestValues):
    @pytest.fixture
    def reference(self) -> Outputs:
        return {"audio": tuple(DRAW.randn(100 + 10 * n) for n in range(20))}


class TestSeveralOutputs(TestValues):
    @pytest.fixture
    def reference(self) -> Outputs:
        lengths = tuple(DRAW.randn(5 + n, 2) for n in range(20))
        return {"one": DRAW.randn(20), "map": DRAW.randn(20, 3, 8, 8), "frames": lengths}


def losses(reference: np.ndarray, outputs: np.ndarray, **others: str) -> np.ndarray:
    task = Regression(**others)
    return np.asarray(task.metric.losses({"out": reference}, {"out": outputs}))


def test_an_offset_does_not_hide_errors() -> None:
    # Temperatures in kelvin: the power of 290 is 3,364 times that of an error of 5.
    temperatures = 290 + 5 * DRAW.randn(200, 1)
    assert losses(temperatures, temperatures + 5).mean() > 0.7
    assert losses(temperatures, temperatures + 0.1).mean() < 1e-3
    maps = 290 + 5 * DRAW.randn(20, 12, 12)
    assert losses(maps, maps + 5).mean() > 0.7
    assert losses(maps, np.full_like(maps, maps.mean())).mean() > 0.9


def test_the_loss_of_a_value_is_its_squared_error_over_the_variance() -> None:
    values = DRAW.randn(50) * 3 + 7
    found = losses(values, values + 0.6)
    np.testing.assert_allclose(found, np.full(50, 0.36 / values.var(ddof=1)))


def test_quantities_of_several_units_count_alike() -> None:
    # Temperature and pressure: errors of the first would vanish in the power of the second.
    weather = np.stack([290 + 5 * DRAW.randn(100), 101_325 + 900 * DRAW.randn(100)], axis=1)
    found = losses(weather, weather + np.array([5, 0]))
    assert found == pytest.approx(0.5, abs=0.1)


def test_the_loss_of_a_wave_is_its_noise_over_its_own_power() -> None:
    loudness = np.where(np.arange(20) % 2, 1.0, 0.1)[:, None]
    reference, noise = loudness * WAVES, 0.03 * DRAW.randn(20, 400)
    wanted = np.square(noise).mean(axis=1) / np.square(reference).mean(axis=1)
    np.testing.assert_allclose(losses(reference, reference + noise), wanted, rtol=0.2)


def test_silence_is_compared_with_the_usual_power() -> None:
    reference = WAVES.copy()
    reference[3] = 0
    found = losses(reference, reference + 1e-3 * DRAW.randn(20, 400))
    assert found[3] < 0.01
    assert losses(reference, reference + 0.3 * DRAW.randn(20, 400))[3] == 1


@pytest.mark.parametrize("shape", [(8,), (8, 3), (8, 300)])
def test_what_is_constant_is_compared_with_its_own_power(shape: tuple[int, ...]) -> None:
    constant = np.full(shape, 2.0, np.float32)
    assert losses(constant, constant + 0.2) == pytest.approx(np.full(8, 0.01), rel=1e-5)
    zeros = np.zeros(shape)
    assert losses(zeros, zeros + 0.1) == pytest.approx(np.full(8, 0.01))


@pytest.mark.parametrize("shape", [(1,), (1, 3), (1, 300)])
def test_one_sample_is_enough(shape: tuple[int, ...]) -> None:
    one = np.random.RandomState(5).randn(*shape)
    assert 0 < losses(one, one * 1.1)[0] < 0.1
    assert list(losses(one, one)) == [0]


def test_users_choose_the_scale() -> None:
    many = WAVES * np.linspace(1, 1000, 400)
    outputs = many.copy()
    outputs[:, 0] += 10
    assert losses(many, outputs, scale="values").mean() > 1e-3
    assert losses(many, outputs, scale="sample").mean() < 1e-5
    few = many[:, :5]
    assert losses(few, few + 1)[0] != losses(few, few + 1, scale="sample")[0]


def test_several_outputs_count_alike() -> None:
    reference = {"a": DRAW.randn(20), "b": 100 * DRAW.randn(20)}
    outputs = {"a": reference["a"] + 100, "b": reference["b"]}
    assert list(Regression().metric.losses(reference, outputs)) == [0.5] * 20


def test_outputs_of_another_length_are_lost() -> None:
    reference = {"out": (np.ones(50), np.ones(60))}
    outputs = {"out": (np.ones(50), np.ones(61))}
    assert list(Regression().metric.losses(reference, outputs)) == [0, 1]


def test_integers_are_numbers_too() -> None:
    reference = np.arange(20, dtype=np.uint8)
    assert losses(reference, reference[::-1]).max() == 1


def test_scores_are_the_mean_error_and_its_share_in_db() -> None:
    targets = np.random.RandomState(5).randn(500)
    scores = Regression().scores({"out": targets + 0.1}, targets)
    assert list(scores) == ["mae", "sqnr_db"]
    assert scores["mae"].value == pytest.approx(0.1)
    assert scores["sqnr_db"].value == pytest.approx(20 * np.log10(targets.std() / 0.1), abs=0.1)
    perfect = Regression().scores({"out": targets}, targets)
    assert perfect["sqnr_db"].value == 120


def test_units_of_several_outputs_are_not_mixed() -> None:
    outputs = {"a": DRAW.randn(4), "b": DRAW.randn(4)}
    targets = [{"a": 0.0, "b": 1.0}] * 4
    assert list(Regression().scores(outputs, targets)) == ["sqnr_db"]
    with pytest.raises(DatasetError, match="no values for output 'a'.*a mapping with their names"):
        Regression().scores(outputs, [0.0] * 4)


@pytest.mark.parametrize("target", ["cold", [1.0, 2.0], np.nan])
def test_targets_that_do_not_fit_are_refused(target: object) -> None:
    with pytest.raises(DatasetError, match="a target"):
        Regression().scores({"out": DRAW.randn(4)}, [target] * 4)


def test_harm_is_not_clipped_but_finite() -> None:
    reference = {"out": WAVES}
    harm = Regression().harm(reference)
    assert 5 < harm.per_sample(changed(reference, 3)).mean() < 15
    assert np.isfinite(harm.per_sample({"out": WAVES * 1e300})).all()

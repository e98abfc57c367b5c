"""What every task must do; the test of each one subclasses this."""

import pickle
from collections.abc import Sequence

import numpy as np
import pytest

from seqto.errors import DatasetError, ModelError
from seqto.figures import table
from seqto.protocols import Task
from seqto.types import Outputs, Targets


def changed(outputs: Outputs, scale: float) -> Outputs:
    """Return the outputs with noise, as ragged as they were."""
    draw = np.random.RandomState(7)
    return {
        name: _like(entries, [each + scale * draw.randn(*each.shape) for each in entries])
        for name, entries in outputs.items()
    }


def picked(outputs: Outputs, order: Sequence[int]) -> Outputs:
    """Return the outputs of these samples."""
    return {
        name: _like(entries, [entries[index] for index in order])
        for name, entries in outputs.items()
    }


def broken(outputs: Outputs, value: float) -> Outputs:
    """Return the outputs, of which the first sample has this value throughout."""
    return {
        name: _like(entries, [np.full_like(entries[0], value), *entries[1:]])
        for name, entries in outputs.items()
    }


def copied(outputs: Outputs) -> Outputs:
    """Return the outputs in other arrays."""
    return {
        name: _like(entries, [each.copy() for each in entries]) for name, entries in outputs.items()
    }


def assert_same(one: Outputs, two: Outputs) -> None:
    """Compare outputs value by value."""
    for name, entries in one.items():
        for first, second in zip(entries, two[name], strict=True):
            np.testing.assert_array_equal(first, second)


def _like(entries: Sequence[np.ndarray], new: list[np.ndarray]) -> Sequence[np.ndarray]:
    return np.stack(new) if isinstance(entries, np.ndarray) else tuple(new)  # type: ignore[return-value]


class TaskSuite:
    """Subclasses give the task, outputs of a float model of 20 samples, and what does not fit."""

    noise = (0.01, 0.3, 3.0)
    """Three scales of noise: hardly any, some, and so much that much is lost."""

    @pytest.fixture
    def task(self) -> Task:
        """Return the task to test."""
        raise NotImplementedError

    @pytest.fixture
    def reference(self) -> Outputs:
        """Return the float model's outputs for 20 samples."""
        raise NotImplementedError

    @pytest.fixture
    def targets(self) -> Targets:
        """Return what is right for each of the samples."""
        raise NotImplementedError

    @pytest.fixture
    def misfits(self) -> list[Outputs]:
        """Return outputs that do not fit, each with a single output called `wrong`."""
        raise NotImplementedError

    def test_has_a_name(self, task: Task) -> None:
        assert task.name and task.metric.name

    def test_equal_outputs_lose_nothing_and_do_no_harm(
        self, task: Task, reference: Outputs
    ) -> None:
        same = copied(reference)
        np.testing.assert_array_equal(task.metric.losses(reference, same), np.zeros(20))
        np.testing.assert_array_equal(task.harm(reference).per_sample(same), np.zeros(20))

    def test_losses_are_fractions_one_per_sample(self, task: Task, reference: Outputs) -> None:
        for scale in self.noise:
            losses = np.asarray(task.metric.losses(reference, changed(reference, scale)))
            assert losses.shape == (20,)
            assert ((losses >= 0) & (losses <= 1)).all()
        assert losses.mean() > 0.05

    def test_more_noise_loses_no_less_and_harms_more(self, task: Task, reference: Outputs) -> None:
        noisy = [changed(reference, scale) for scale in self.noise]
        losses = [float(np.mean(task.metric.losses(reference, each))) for each in noisy]
        harms = [float(np.mean(task.harm(reference).per_sample(each))) for each in noisy]
        assert losses == sorted(losses) and losses[-1] > losses[0]
        assert 0 < harms[0] < harms[1] < harms[2]

    def test_harm_is_on_the_common_scale(self, task: Task, reference: Outputs) -> None:
        harm = task.harm(reference)
        least, _, most = (changed(reference, scale) for scale in self.noise)
        assert np.mean(harm.per_sample(least)) < 1e-2
        assert np.mean(harm.per_sample(most)) > 0.1

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_what_is_not_finite_is_lost(self, task: Task, reference: Outputs, value: float) -> None:
        outputs = broken(reference, value)
        losses = np.asarray(task.metric.losses(reference, outputs))
        harms = task.harm(reference).per_sample(outputs)
        assert losses[0] == 1 and np.isfinite(losses).all()
        assert harms[0] >= 1 and np.isfinite(harms).all()
        np.testing.assert_array_equal(harms[1:], np.zeros(19))

    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_a_float_model_that_is_not_finite_is_no_reason_to_fail(
        self, task: Task, reference: Outputs, value: float
    ) -> None:
        own = broken(reference, value)
        for outputs in (own, reference):
            for found in (task.metric.losses(own, outputs), task.harm(own).per_sample(outputs)):
                assert np.isfinite(found).all()
        np.testing.assert_array_equal(task.metric.losses(own, own), np.zeros(20))
        np.testing.assert_array_equal(task.harm(own).per_sample(own), np.zeros(20))

    def test_harm_takes_fewer_samples(self, task: Task, reference: Outputs) -> None:
        outputs = changed(reference, self.noise[1])
        harm = task.harm(reference)
        whole = harm.per_sample(outputs)
        np.testing.assert_allclose(harm.per_sample(picked(outputs, range(3))), whole[:3])

    def test_samples_are_judged_in_their_order(self, task: Task, reference: Outputs) -> None:
        outputs = changed(reference, self.noise[2])
        order = np.random.RandomState(1).permutation(20)
        for judge in (task.metric.losses, lambda one, two: task.harm(one).per_sample(two)):
            found = np.asarray(judge(reference, outputs))
            other = judge(picked(reference, order), picked(outputs, order))
            np.testing.assert_allclose(other, found[order], atol=1e-12)

    def test_outputs_stay_as_they_are(
        self, task: Task, reference: Outputs, targets: Targets
    ) -> None:
        outputs = changed(reference, self.noise[1])
        before = copied(reference), copied(outputs)
        task.metric.losses(reference, outputs)
        task.harm(reference).per_sample(outputs)
        task.scores(outputs, targets)
        assert_same(reference, before[0])
        assert_same(outputs, before[1])

    def test_arrays_that_must_not_be_written_are_taken(
        self, task: Task, reference: Outputs
    ) -> None:
        outputs = changed(reference, self.noise[1])
        for entries in (*reference.values(), *outputs.values()):
            for each in [entries] if isinstance(entries, np.ndarray) else entries:
                each.flags.writeable = False
        task.metric.losses(reference, outputs)
        task.harm(reference).per_sample(outputs)

    def test_it_can_be_pickled(self, task: Task, reference: Outputs) -> None:
        outputs = changed(reference, self.noise[2])
        again = pickle.loads(pickle.dumps(task))
        wanted = task.metric.losses(reference, outputs)
        np.testing.assert_array_equal(again.metric.losses(reference, outputs), wanted)
        harm = pickle.loads(pickle.dumps(task.harm(reference)))
        assert (harm.per_sample(outputs) > 0).any()

    def test_scores_are_figures_of_the_table(
        self, task: Task, reference: Outputs, targets: Targets
    ) -> None:
        known = {each.name for each in table.FIGURES if each.has_interval}
        for outputs in (reference, changed(reference, self.noise[2]), broken(reference, np.nan)):
            scores = task.scores(outputs, targets)
            assert scores and set(scores) <= known
            for each in scores.values():
                assert np.isfinite([each.low, each.value, each.high]).all()
                assert each.low <= each.value <= each.high

    def test_noise_makes_scores_worse(
        self, task: Task, reference: Outputs, targets: Targets
    ) -> None:
        first = next(iter(task.scores(reference, targets)))
        own, other = (
            task.scores(each, targets)[first].value
            for each in (reference, changed(reference, self.noise[2]))
        )
        assert own < other if table.figure(first).less_is_better else own > other

    def test_too_few_targets_are_refused(
        self, task: Task, reference: Outputs, targets: Targets
    ) -> None:
        with pytest.raises(DatasetError, match="19 targets for 20 samples"):
            task.scores(reference, targets[:19])

    def test_what_does_not_fit_is_refused_by_name_and_shape(
        self, task: Task, misfits: list[Outputs], targets: Targets
    ) -> None:
        assert misfits
        for outputs in misfits:
            shape = str(list(outputs["wrong"][0].shape)).replace("[", r"\[").replace("]", r"\]")
            said = f"'wrong' has the shape {shape}.*task="
            with pytest.raises(ModelError, match=said):
                task.metric.losses(outputs, outputs)
            with pytest.raises(ModelError, match=said):
                task.harm(outputs)
            with pytest.raises(ModelError, match=said):
                task.scores(outputs, targets)


class SingleOutputSuite(TaskSuite):
    """What tasks of one output must do besides."""

    def test_several_outputs_are_refused(
        self, task: Task, reference: Outputs, targets: Targets
    ) -> None:
        (entries,) = reference.values()
        both = {"one": entries, "two": entries}
        for judge in (
            lambda: task.metric.losses(both, both),
            lambda: task.harm(both),
            lambda: task.scores(both, targets),
        ):
            with pytest.raises(ModelError, match=r"2 outputs.*model.outputs=\[one\]"):
                judge()

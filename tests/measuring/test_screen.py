"""Candidates on a few samples of the search's own, and the studies that screen them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tiny_studies import Lab

from seqto.errors import DeviceError, StudyError
from seqto.measuring.screen import Screen
from seqto.measuring.subject import Subject, rank_layers
from seqto.metrics.agreement import top1
from seqto.metrics.harm import Divergence
from seqto.pareto.front import non_dominated
from seqto.pareto.limits import Constraint
from seqto.protocols import Search
from seqto.quantizers.auto import AutoQuantizer
from seqto.quantizers.static import StaticQuantizer
from seqto.search.budget import BudgetSearch
from seqto.search.nsga2 import Nsga2Search
from seqto.search.walk import Walk
from seqto.sensitivity.divergence import DivergenceSensitivity
from seqto.study.shortlist import SCREENED, shortlist, smoothed, spread
from seqto.tracking.memory import MemoryTracker
from seqto.types import FLOAT32, INT8, Candidate, LayerScore, Outputs, Samples, Trial, TrialState
from seqto.workspace import Workspace

SCREENS = 6
PRECISIONS = ("int4", "int8", "float16", "float32")


def mixed_lab(folder: Path) -> Lab:
    """Return a lab with a search that screens, and four precisions to choose from."""
    return Lab.at(
        folder,
        sensitivity=DivergenceSensitivity(samples=4, precisions=list(PRECISIONS)),
        search=BudgetSearch(budgets=8, evaluations=6, screens=SCREENS),
        # With better int4, hardly anything else would be on the front.
        quantizer=StaticQuantizer(feedback=False),
        precisions=PRECISIONS,
    )


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return mixed_lab(tmp_path_factory.mktemp("lab"))


@pytest.fixture
def lab(prepared: Lab) -> Iterator[Lab]:
    """Return the lab, its device undisturbed."""
    prepared.device.__init__()  # type: ignore[misc]
    yield prepared
    prepared.device.__init__()  # type: ignore[misc]


@pytest.fixture(scope="module")
def ranking(prepared: Lab) -> tuple[LayerScore, ...]:
    return rank_layers(prepared.parts, prepared.subject, prepared.workspace)


def all_in(lab: Lab, precision: str) -> Candidate:
    return Candidate.of(dict.fromkeys(lab.subject.layer_names, precision))


def poisoned(subject: Subject) -> Subject:
    """Return the subject with evaluation samples that spoil whatever looks at them."""
    samples = subject.samples
    inputs = {name: np.full_like(array, np.nan) for name, array in samples.inputs.items()}
    return replace(
        subject,
        samples=replace(samples, inputs=inputs, targets=None),
        reference={"y": np.full_like(subject.reference["y"], np.nan)},
    )


# The screen


def test_screen_measures_the_first_calibration_samples(lab: Lab, tmp_path: Path) -> None:
    candidate = all_in(lab, "int4")
    trial = Screen(lab.parts, lab.subject, SCREENS, tmp_path).measure(candidate)
    subject = lab.subject
    inputs = {name: array[:SCREENS] for name, array in subject.calibration.inputs.items()}
    model = lab.parts.quantizer.quantize(subject.model, subject.ranges, candidate)
    ours, theirs = (lab.device.load(each).run(inputs)[0] for each in (model, subject.model))
    harm = Divergence({"y": theirs}).per_sample({"y": ours})
    assert trial.metrics["divergence"] == pytest.approx(harm.mean(), rel=1e-5)
    assert trial.metrics["divergence"] > 0
    assert trial.metrics["disagreement"] == np.mean(top1(theirs) != top1(ours))
    assert trial.metrics["size_bytes"] == len(model.to_bytes())
    assert trial.candidate == candidate and trial.state is TrialState.COMPLETE


def test_float_model_does_not_diverge(lab: Lab, tmp_path: Path) -> None:
    trial = Screen(lab.parts, lab.subject, SCREENS, tmp_path).measure(all_in(lab, FLOAT32))
    assert trial.metrics["divergence"] == pytest.approx(0, abs=1e-9)
    assert trial.metrics["disagreement"] == 0


def test_calibration_and_evaluation_samples_are_disjoint(lab: Lab) -> None:
    screened = lab.subject.calibration.first(SCREENS)
    assert len(screened) == SCREENS == len(set(screened.ids))
    assert not set(lab.subject.calibration.ids) & set(lab.subject.samples.ids)
    assert screened.ids == lab.subject.calibration.ids[:SCREENS]


def test_each_candidate_is_measured_once(lab: Lab, tmp_path: Path) -> None:
    screen = Screen(lab.parts, lab.subject, SCREENS, tmp_path)
    before = lab.device.loads
    one = screen.measure(all_in(lab, INT8))
    assert lab.device.loads == before + 1
    assert screen.measure(all_in(lab, INT8)) is one
    assert lab.device.loads == before + 1
    other = screen.measure(all_in(lab, "int4"))
    assert lab.device.loads == before + 2
    assert (one.index, other.index) == (0, 1) and list(screen.trials.values()) == [one, other]


def test_results_are_kept_in_the_folder(lab: Lab, tmp_path: Path) -> None:
    candidate = all_in(lab, INT8)
    measured = Screen(lab.parts, lab.subject, SCREENS, tmp_path).measure(candidate)
    later = Screen(lab.parts, lab.subject, SCREENS, tmp_path)
    before = lab.device.loads
    assert later.measure(candidate) == measured
    assert lab.device.loads == before
    elsewhere = Screen(lab.parts, lab.subject, SCREENS, tmp_path / "other")
    before = lab.device.loads
    assert elsewhere.measure(candidate) == measured
    assert lab.device.loads == before + 1


def test_candidate_that_cannot_be_measured_has_failed_and_is_not_kept(
    lab: Lab, tmp_path: Path
) -> None:
    screen = Screen(lab.parts, lab.subject, SCREENS, tmp_path)

    def broken() -> None:
        raise DeviceError("it broke")

    lab.device.disturb = broken
    trial = screen.measure(all_in(lab, INT8))
    assert trial.state is TrialState.FAILED and trial.failure == "DeviceError: it broke"
    assert not list(tmp_path.iterdir())
    lab.device.disturb = lambda: None
    again = Screen(lab.parts, lab.subject, SCREENS, tmp_path).measure(all_in(lab, INT8))
    assert again.state is TrialState.COMPLETE


def test_an_interrupted_screen_is_not_a_failed_candidate(lab: Lab, tmp_path: Path) -> None:
    screen = Screen(lab.parts, lab.subject, SCREENS, tmp_path)

    def interrupted() -> None:
        raise KeyboardInterrupt

    lab.device.disturb = interrupted
    with pytest.raises(KeyboardInterrupt):
        screen.measure(all_in(lab, INT8))
    assert not screen.trials


def test_first_takes_inputs_ids_and_labels() -> None:
    samples = Samples({"x": np.arange(8).reshape(4, 2)}, ("a", "b", "c", "d"), np.arange(4))
    two = samples.first(2)
    assert two.inputs["x"].tolist() == [[0, 1], [2, 3]] and two.ids == ("a", "b")
    assert two.targets is not None and list(two.targets) == [0, 1]
    assert replace(samples, targets=None).first(2).targets is None
    assert len(samples.first(100)) == 4


# The search behind it


class Screened:
    """A search whose candidates are screened, and the list of what is evaluated in full."""

    def __init__(self, search: Search, screen: Screen, bases: Sequence[str] = ("",)) -> None:
        self.search, self.screen, self.bases = search, screen, bases

    def listed(self, lab: Lab, rankings: Mapping[str, Sequence[LayerScore]]) -> list[Candidate]:
        """Run the whole search on the screen, and return what is evaluated in full."""
        self.screen.measure_all(Walk(self.search, rankings))
        candidates = shortlist(
            list(self.screen.trials.values()),
            [replace(all_in(lab, INT8), scheme=base) for base in self.bases],
            self.search.evaluations,
            lambda trials, count: spread(trials, count, 300),
        )
        assert len(candidates) <= self.search.evaluations
        return candidates


def screened(
    lab: Lab, folder: Path, search: Search | None = None, subject: Subject | None = None
) -> Screened:
    search = search or lab.parts.search
    return Screened(search, Screen(lab.parts, subject or lab.subject, search.screens, folder))


def break_every_second_load(lab: Lab) -> None:
    loads = lab.device.loads

    def often() -> None:
        if (lab.device.loads - loads) % 2:
            raise DeviceError("it broke")

    lab.device.disturb = often


def test_poisoned_evaluation_samples_change_nothing(
    lab: Lab, ranking: tuple[LayerScore, ...], tmp_path: Path
) -> None:
    clean = screened(lab, tmp_path / "clean")
    wanted = clean.listed(lab, {"": ranking})
    subject = poisoned(lab.subject)
    with pytest.raises(DeviceError):
        # The poison works.
        Screen(lab.parts, replace(subject, calibration=subject.samples), SCREENS, tmp_path)
    # Into an empty workspace: nothing is taken from the analysis before.
    again = rank_layers(lab.parts, subject, Workspace(tmp_path / "workspace"))
    assert again == ranking
    search = screened(lab, tmp_path / "poisoned", subject=subject)
    assert search.listed(lab, {"": again}) == wanted
    assert search.screen.trials == clean.screen.trials


@pytest.mark.parametrize("evaluations", [3, 4, 5, 6, 100])
def test_at_most_so_many_are_evaluated_and_the_baselines_always(
    lab: Lab, ranking: tuple[LayerScore, ...], tmp_path: Path, evaluations: int
) -> None:
    search = screened(lab, tmp_path, BudgetSearch(budgets=8, evaluations=evaluations, screens=4))
    candidates = search.listed(lab, {"": ranking})
    front = non_dominated(list(search.screen.trials.values()), SCREENED)
    worth = {trial.candidate for trial in front} | {all_in(lab, INT8)}
    # The float model is what all are compared with.
    worth -= {all_in(lab, FLOAT32)}
    # Those that do not work, or change nothing, are left out but for one of each.
    assert 3 <= len(candidates) <= min(evaluations, len(worth))
    assert len(candidates) == len(set(candidates))
    assert set(candidates) <= worth
    assert candidates[0] == all_in(lab, INT8)


def test_the_list_is_sorted_by_size(
    lab: Lab, ranking: tuple[LayerScore, ...], tmp_path: Path
) -> None:
    search = screened(lab, tmp_path)
    between = search.listed(lab, {"": ranking})[1:]
    sizes = [search.screen.trials[each].metrics["size_bytes"] for each in between]
    assert len(sizes) >= 3 and sizes == sorted(sizes)


def test_baselines_that_the_search_never_tried_are_evaluated(
    lab: Lab, ranking: tuple[LayerScore, ...], tmp_path: Path
) -> None:
    search = screened(lab, tmp_path)
    candidates = search.listed(lab, {"": ranking})
    assert all_in(lab, INT8) not in search.screen.trials, "or this is no test"
    assert all_in(lab, INT8) in candidates


def test_the_search_is_told_of_all_that_it_asks_for(
    lab: Lab, ranking: tuple[LayerScore, ...], tmp_path: Path
) -> None:
    inner = Nsga2Search(population=6, generations=2, evaluations=4, screens=4)
    search = screened(lab, tmp_path, inner)
    candidates = search.listed(lab, {"": ranking})
    assert 6 < len(search.screen.trials) <= 12
    assert inner.remaining() == 0
    assert len(candidates) == 4


def test_failures_on_the_screen_are_not_evaluated_but_the_baselines_are(
    lab: Lab, ranking: tuple[LayerScore, ...], tmp_path: Path
) -> None:
    search = screened(lab, tmp_path)
    break_every_second_load(lab)
    candidates = search.listed(lab, {"": ranking})
    trials = search.screen.trials.values()
    failed = {each.candidate for each in trials if each.state is TrialState.FAILED}
    assert failed and len(failed) < len(trials)
    assert not failed & set(candidates[1:])
    assert all_in(lab, INT8) in candidates


def test_where_all_fail_on_the_screen_the_baselines_say_why(
    lab: Lab, ranking: tuple[LayerScore, ...], tmp_path: Path
) -> None:
    search = screened(lab, tmp_path)

    def broken() -> None:
        raise DeviceError("it broke")

    lab.device.disturb = broken
    assert search.listed(lab, {"": ranking}) == [all_in(lab, INT8)]


# Its table


def test_table_has_what_was_screened_by_size_and_what_of_it_is_evaluated(
    lab: Lab, ranking: tuple[LayerScore, ...], tmp_path: Path
) -> None:
    search = screened(lab, tmp_path, BudgetSearch(budgets=8, evaluations=3, screens=4))
    candidates = search.listed(lab, {"": ranking})
    table = search.screen.table(candidates)
    assert json.loads(json.dumps(table)) == table
    trials = {trial.candidate.key: trial for trial in search.screen.trials.values()}
    assert len(table) == len(trials) > 3 and {row["key"] for row in table} == set(trials)
    for row in table:
        figures = trials[str(row["key"])].metrics
        assert {name: row[name] for name in figures} == figures
        assert (row["scheme"], row["failure"]) == ("", None)
    sizes = [row["size_bytes"] for row in table]
    assert sizes == sorted(sizes) and len(set(sizes)) > 3
    evaluated = {str(row["key"]) for row in table if row["evaluated"]}
    asked = {candidate.key for candidate in candidates}
    # The search never tried full int8, which is evaluated all the same.
    assert evaluated == asked & set(trials) and len(evaluated) == len(asked) - 1
    assert len(evaluated) < len(table)


def test_table_says_why_a_candidate_failed(
    lab: Lab, ranking: tuple[LayerScore, ...], tmp_path: Path
) -> None:
    search = screened(lab, tmp_path)
    break_every_second_load(lab)
    table = search.screen.table(search.listed(lab, {"": ranking}))
    failed = [row for row in table if row["failure"] is not None]
    assert failed and len(failed) < len(table) == len(search.screen.trials)
    assert {row["failure"] for row in failed} == {"DeviceError: it broke"}
    assert not any("divergence" in row for row in failed)


# Bases


def test_baselines_are_those_of_the_base_and_rows_have_their_scheme(
    lab: Lab, ranking: tuple[LayerScore, ...], tmp_path: Path
) -> None:
    quantizer = AutoQuantizer(only=["7 bits per tensor", "uint8 per channel"], kernels=["safe"])
    bases = list(quantizer.schemes)
    parts = replace(lab.parts, quantizer=quantizer)
    rankings = dict.fromkeys(bases, ranking)
    screen = Screen(parts, lab.subject, SCREENS, tmp_path)
    search = Screened(lab.parts.search, screen, bases[1:])
    candidates = search.listed(lab, rankings)
    assert candidates[0] == replace(all_in(lab, INT8), scheme=bases[1])
    every = Screened(lab.parts.search, screen, bases)
    full = [replace(all_in(lab, INT8), scheme=base) for base in bases]
    assert every.listed(lab, rankings)[:2] == full, "the screen does not see which base is faster"
    table = screen.table(candidates)
    tried = {scheme: [row for row in table if row["scheme"] == scheme] for scheme in bases}
    assert len(tried[bases[0]]) == len(tried[bases[1]]) == len(table) / 2 > 3
    # The same layers in the same precisions, in another scheme.
    harms = [{row["divergence"] for row in rows} for rows in tried.values()]
    assert harms[0] != harms[1]


# What is taken from the front


def screened_trials(points: Sequence[tuple[float, float]]) -> list[Trial]:
    return [
        Trial(
            "",
            at,
            Candidate((("layer", str(at)),)),
            TrialState.COMPLETE,
            {"divergence": harm, "size_bytes": size},
        )
        for at, (harm, size) in enumerate(points)
    ]


FRONT = screened_trials([(4.0 ** (1 - at), 100.0 + 10 * at) for at in range(9)] + [(0.0, 400.0)])
BEHIND = [replace(each, index=each.index + 10) for each in screened_trials([(5, 300), (0.9, 500)])]


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
def test_spread_takes_the_front_and_no_ruined_model(count: int) -> None:
    chosen = spread([*FRONT, *BEHIND], count, samples=300)
    indices = [trial.index for trial in chosen]
    assert len(indices) == count == len(set(indices))
    # With 4.0 hardly a prediction is left; 1.0 is the nearest to where 15 % of them change.
    assert 1 in indices and set(indices) <= set(range(1, 10))


def test_spread_steps_evenly_in_orders_of_magnitude() -> None:
    line = screened_trials([(0.25 * 4.0**-at, 10.0 * 1.2**at) for at in range(6)])
    # A loss of 1.5 of 240 samples is a divergence of 0.001.
    assert sorted(trial.index for trial in spread(line, 3, samples=240)) == [0, 2, 4]


def foreseen(seen: Sequence[tuple[float, float, float]]) -> list[Trial]:
    """Return trials with these divergences, losses that are foreseen, and megabytes."""
    trials = screened_trials([(harm, size) for harm, _, size in seen])
    return [
        replace(each, metrics={**each.metrics, "expected_loss": loss})
        for each, (_, loss, _) in zip(trials, seen, strict=True)
    ]


def test_sizes_tell_trials_apart_whose_likely_losses_are_alike() -> None:
    # EfficientNet-Lite0: harms and losses guessed from 16 photos, and megabytes.
    line = foreseen(
        [
            (0.43785, 0.17681, 1.251),
            (0.10713, 0.08521, 1.593),
            (0.04403, 0.05920, 1.930),
            (0.01471, 0.02670, 2.302),
            (0.01198, 0.02752, 2.681),
            (0.00413, 0.01637, 2.879),
            (0.00198, 0.01116, 3.077),
            (0.00177, 0.00921, 3.473),
            (0.00033, 0.00458, 3.958),
            (0.00025, 0.00332, 4.443),
        ]
    )
    # By losses alone it is the larger of the two that would be taken, and 1.93 to 2.68 a gap.
    assert sorted(trial.index for trial in spread(line, 7, samples=300)) == [0, 1, 2, 3, 5, 7, 8]


def test_a_loss_that_is_guessed_too_high_leaves_no_gap() -> None:
    # EfficientNet-Lite0 once more; of other photos the fifth one loses 0.7 to 1 %.
    line = foreseen(
        [
            (0.4397, 0.1771, 1.251),
            (0.1022, 0.0816, 1.594),
            (0.0449, 0.0580, 1.930),
            (0.0147, 0.0260, 2.302),
            (0.0125, 0.0282, 2.682),
            (0.0034, 0.0147, 2.951),
            (0.0018, 0.0104, 3.112),
            (0.0017, 0.0090, 3.453),
            (0.0006, 0.0055, 3.825),
            (0.0001, 0.0027, 4.179),
        ]
    )
    assert sorted(trial.index for trial in spread(line, 7, samples=300)) == [0, 1, 2, 3, 4, 6, 8]


def test_where_losses_fall_at_once_they_are_not_taken_for_chance() -> None:
    fallen = [(1.0 / at, 0.5 if at < 4 else 0.01, 2.0 * 1.1**at) for at in range(1, 9)]
    # The largest of those that are ruined is enough.
    assert min(trial.index for trial in spread(foreseen(fallen), 4, samples=300)) == 2


def test_one_trial_alone_is_taken() -> None:
    line = screened_trials([(0.01, 10.0)])
    assert spread(line, 1, samples=200) == line


def test_losses_on_the_screen_tell_how_far_the_spread_reaches() -> None:
    line = screened_trials([(0.25 * 4.0**-at, 10.0 * 1.2**at) for at in range(8)])

    def losing(share: float) -> list[Trial]:
        return [
            replace(
                each,
                metrics={**each.metrics, "disagreement": share * each.metrics["divergence"] ** 0.5},
            )
            for each in line
        ]

    assert min(each.index for each in spread(losing(0.2), 3, samples=160)) == 0
    # If predictions change eight times as often, a 64th of the divergence is too much already.
    assert min(each.index for each in spread(losing(1.6), 3, samples=160)) == 2


def test_chance_on_the_screen_is_smoothed() -> None:
    # One of sixteen, none, two, none: nothing falls as evenly as the divergence does.
    counted = (2 / 16, 0.0, 1 / 16, 0.0)
    line = [
        replace(each, metrics={**each.metrics, "disagreement": share})
        for each, share in zip(
            screened_trials([(0.16 * 4.0**-at, 10.0 * at) for at in range(4)]), counted, strict=True
        )
    ]
    found = [each.metrics["disagreement"] for each in smoothed(line)]
    np.testing.assert_allclose(found, [0.1, 0.05, 0.025, 0.0125])
    assert sum(found) == pytest.approx(sum(counted))


def test_negligible_harm_is_one_step_however_small() -> None:
    tiny = screened_trials(
        [(0.1, 10.0), (0.01, 20.0), *((1e-5 / at, 20.0 + at) for at in (1, 2, 3))]
    )
    assert {0, 1} <= {trial.index for trial in spread(tiny, 3, samples=300)}


@pytest.mark.parametrize("count", [10, 50])
def test_spread_of_all_is_the_front(count: int) -> None:
    chosen = spread([*BEHIND, *FRONT], count, samples=300)
    assert sorted(trial.index for trial in chosen) == list(range(10))


def expecting(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials of a task that tells the losses to be expected."""
    return [
        replace(each, metrics={**each.metrics, "expected_loss": 0.2 * harm**0.5})
        for each in trials
        for harm in [each.metrics["divergence"]]
    ]


def test_where_losses_count_samples_one_is_enough_beyond_each_end() -> None:
    harms = (9.0, 4.0, 0.1, 0.01, 1e-4, 1e-6, 1e-7)
    line = screened_trials([(harm, 10.0 * at) for at, harm in enumerate(harms)])

    def chosen(trials: Sequence[Trial], samples: int) -> list[int]:
        return sorted(trial.index for trial in spread(trials, 7, samples))

    # Losses of 40 % do not work, and less than 0.75 of 300 samples is 0.25 %.
    assert chosen(expecting(line), 300) == [1, 2, 3, 4]
    assert chosen(expecting(line), 3000) == [1, 2, 3, 4, 5]
    assert chosen(expecting(line[5:]), 300) == [5]
    # Other losses may be small and still tell candidates apart.
    assert chosen(line, 300) == list(range(7))


def test_spread_of_a_single_point_is_that_point() -> None:
    assert spread(FRONT[:1], 4, samples=300) == FRONT[:1]


# Whole studies


def launched(lab: Lab, tracker: MemoryTracker, **settings: object) -> list[Candidate]:
    return [trial.candidate for trial in lab.run(tracker, **settings).record.trials]


def test_study_has_a_front_of_what_was_screened(lab: Lab) -> None:
    tracker = MemoryTracker()
    outcome = lab.run(tracker)
    trials = outcome.record.trials
    assert 4 <= outcome.measured == len(trials) <= 6
    assert {trial.state for trial in trials} == {TrialState.COMPLETE}
    assert all_in(lab, INT8) in {trial.candidate for trial in trials}
    assert not any(trial.candidate.is_float for trial in trials)
    assert len(outcome.front.members) >= 3
    for trial in trials:
        metrics = trial.metrics
        low, high = metrics["accuracy_loss_low"], metrics["accuracy_loss_high"]
        assert 0 <= low <= metrics["accuracy_loss"] + 1e-12 <= high <= 1
        assert metrics["divergence"] >= 0


def test_resumed_study_measures_nothing_again(lab: Lab) -> None:
    tracker = MemoryTracker()
    whole = lab.run(tracker)
    log: list[int] = []
    loads = lab.device.loads
    again = lab.run(tracker, log)
    assert (again.measured, log) == (0, [])
    # Only the float model, as the screen's reference.
    assert lab.device.loads == loads + 1
    assert again.front == whole.front


def test_study_killed_half_way_goes_on_with_the_same_list(lab: Lab) -> None:
    whole = launched(lab, MemoryTracker())
    tracker = MemoryTracker()

    def interrupt(index: int) -> None:
        if index == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lab.run(tracker, before=interrupt)
    log: list[int] = []
    outcome = lab.run(tracker, log)
    assert log == list(range(3, len(whole))) != []
    assert [trial.candidate for trial in outcome.record.trials] == whole


class Forwards:
    """The usual metric, of which nothing is foreseen."""

    name = "top1"

    def losses(self, reference: Outputs, outputs: Outputs) -> np.ndarray:
        return np.asarray(top1(reference["y"]) != top1(outputs["y"]), float)


class Backwards:
    """A metric that calls the worst outputs the best."""

    name = "top1"

    def losses(self, reference: Outputs, outputs: Outputs) -> np.ndarray:
        return np.asarray(top1(reference["y"]) == top1(outputs["y"]), float)


def test_what_is_evaluated_does_not_depend_on_evaluations(lab: Lab, tmp_path: Path) -> None:
    wanted = lab.with_metric(Forwards()).run(MemoryTracker())
    # Nothing is taken from the first study: neither its analysis nor its screen.
    other = replace(lab.with_metric(Backwards()), workspace=Workspace(tmp_path))
    found = other.run(MemoryTracker())
    losses = [
        [each.metrics["accuracy_loss"] for each in it.record.trials] for it in (wanted, found)
    ]
    assert losses[0] != losses[1], "or this is no test"
    assert [each.candidate for each in found.record.trials] == [
        each.candidate for each in wanted.record.trials
    ]


def test_study_spends_its_evaluations_around_the_constraint(lab: Lab, tmp_path: Path) -> None:
    other = replace(lab, workspace=Workspace(tmp_path))
    constraint = Constraint(max_size_ratio=0.5)
    trials = other.run(MemoryTracker(), constraint=constraint).record.trials
    between = [trial for trial in trials if trial.candidate != all_in(lab, INT8)]
    assert len(between) >= 2 and len(trials) <= 6
    assert all(trial.metrics["size_ratio"] <= 0.5 for trial in between)
    assert constraint.best(trials) is not None


def test_study_whose_every_candidate_fails_says_why(lab: Lab, tmp_path: Path) -> None:
    other = replace(lab, workspace=Workspace(tmp_path))
    other.run(MemoryTracker())  # The analysis is kept, and the device may break after it.
    for path in tmp_path.glob("screens/*/*.json"):
        path.unlink()
    loads = lab.device.loads

    def broken() -> None:
        # The float model is loaded for its latency, and as the screen's reference.
        if lab.device.loads > loads + 2:
            raise DeviceError("it broke")

    lab.device.disturb = broken
    with pytest.raises(StudyError, match="it broke"):
        other.run(MemoryTracker())

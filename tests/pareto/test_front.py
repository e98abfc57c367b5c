import dataclasses
import math
import random

import pytest
from studies import trial

from seqto.errors import StudyError
from seqto.pareto.front import find_front, hypervolume, in_float_units
from seqto.types import Front, Trial, TrialState

LOSS_SIZE = ("accuracy_loss", "size_bytes")
BASELINE = {"size_bytes": 1000.0, "latency_ms": 10.0}


def point(index: int, loss: float, size: float, **more: float) -> Trial:
    return trial(index, accuracy_loss=loss, size_bytes=size, **more)


def indices(front: Front) -> list[int]:
    return [member.index for member in front.members]


def aliases(front: Front) -> dict[str, int]:
    return {each.alias: each.trial.index for each in front.recommended}


HAND = [
    point(0, 0.10, 300),
    point(1, 0.02, 500),
    point(2, 0.05, 600),  # dominated by 1
    point(3, 0.00, 900),
    point(4, 0.10, 400),  # dominated by 0, which is as good in one objective
]


def test_front_is_what_nothing_dominates_sorted_by_the_first_objective() -> None:
    assert indices(find_front(HAND, LOSS_SIZE, BASELINE)) == [3, 1, 0]
    assert indices(find_front(HAND, ("size_bytes", "accuracy_loss"), BASELINE)) == [0, 1, 3]


def test_front_agrees_with_the_definition_on_random_points() -> None:
    draw = random.Random(7)
    trials = [
        point(at, draw.randrange(8) / 10, draw.randrange(8), latency_ms=draw.randrange(8))
        for at in range(80)
    ]
    names = (*LOSS_SIZE, "latency_ms")
    rows = {each.index: tuple(each.metrics[name] for name in names) for each in trials}

    def dominated(mine: tuple[float, ...]) -> bool:
        return any(
            other != mine and all(a <= b for a, b in zip(other, mine, strict=True))
            for other in rows.values()
        )

    optimal = {row for row in rows.values() if not dominated(row)}
    front = find_front(trials, names, BASELINE)
    assert {rows[index] for index in indices(front)} == optimal
    assert len(front.members) == len(optimal)
    assert [rows[index] for index in indices(front)] == sorted(optimal)


def test_equal_objectives_keep_the_lowest_index() -> None:
    trials = [point(5, 0.1, 300), point(2, 0.1, 300), point(3, 0.0, 900), point(4, 0.0, 900)]
    assert indices(find_front(trials, LOSS_SIZE, BASELINE)) == [3, 2]


def test_only_complete_trials_that_repeat_none_take_part() -> None:
    best = {"accuracy_loss": 0.0, "size_bytes": 1.0}
    others = [
        trial(10, state=TrialState.FAILED, **best),
        trial(11, state=TrialState.RUNNING, **best),
        trial(12, state=TrialState.KILLED),
        trial(13, duplicate_of=0, **best),
    ]
    assert indices(find_front([*others, *HAND], LOSS_SIZE, BASELINE)) == [3, 1, 0]


def test_recommended_are_balanced_and_the_best_of_each_objective() -> None:
    # Shares of the front's span, by hand: 3 (0, 1), 1 (0.2, 0.33), 0 (1, 0).
    front = find_front(HAND, LOSS_SIZE, BASELINE)
    assert aliases(front) == {"balanced": 1, "accurate": 3, "small": 0}
    assert [each.alias for each in front.recommended] == ["balanced", "accurate", "small"]


@pytest.mark.parametrize(("top_k", "kept"), [(0, []), (1, ["balanced"]), (9, 3)])
def test_at_most_top_k_are_recommended(top_k: int, kept: list[str] | int) -> None:
    found = [each.alias for each in find_front(HAND, LOSS_SIZE, BASELINE, top_k).recommended]
    assert found == kept if isinstance(kept, list) else len(found) == kept


def test_one_trial_may_hold_all_aliases() -> None:
    front = find_front([point(0, 0.0, 100), point(1, 0.1, 200)], LOSS_SIZE, BASELINE)
    assert aliases(front) == {"balanced": 0, "accurate": 0, "small": 0}
    assert front.aliases(front.members[0]) == ("balanced", "accurate", "small")


def test_balanced_tie_goes_to_the_smaller() -> None:
    trials = [point(0, 0.03, 100), point(1, 0.02, 200), point(2, 0.01, 300), point(3, 0.0, 400)]
    assert aliases(find_front(trials, LOSS_SIZE, BASELINE))["balanced"] == 1
    assert aliases(find_front(trials[::3], LOSS_SIZE, BASELINE))["balanced"] == 0
    reversed_order = find_front(trials, ("size_bytes", "accuracy_loss"), BASELINE)
    assert aliases(reversed_order)["balanced"] == 1


def test_ties_on_an_objective_are_broken_by_the_others() -> None:
    trials = [
        point(0, 0.0, 500, latency_ms=9),
        point(1, 0.1, 500, latency_ms=3),
        point(2, 0.1, 400, latency_ms=9),
        point(3, 0.0, 600, latency_ms=3),
    ]
    front = find_front(trials, (*LOSS_SIZE, "latency_ms"), BASELINE, top_k=4)
    found = aliases(front)
    assert found["accurate"] == 0  # 3 has no loss either, but is larger
    assert found["fast"] == 3  # 1 is as fast, but has a loss


def test_other_objectives_name_their_alias_and_sizes_share_one() -> None:
    trials = [point(0, 0.0, 1, peak_memory=5, size_ratio=0.5)]
    names = ("size_bytes", "size_ratio", "peak_memory")
    front = find_front(trials, names, BASELINE, top_k=9)
    assert [each.alias for each in front.recommended] == ["balanced", "small", "best-peak-memory"]


def test_single_objective_has_one_member() -> None:
    front = find_front(HAND, ("size_bytes",), BASELINE)
    assert indices(front) == [0]
    assert front.hypervolume == pytest.approx(0.7)


def test_hypervolume_by_hand_in_units_of_the_float_model() -> None:
    # Steps from the right: (1-0.9)*1 + (0.9-0.5)*(1-0.02) + (0.5-0.3)*(1-0.1).
    front = find_front(HAND, LOSS_SIZE, BASELINE)
    assert front.hypervolume == pytest.approx(0.1 + 0.392 + 0.18)


def test_hypervolume_of_three_objectives_by_hand() -> None:
    assert hypervolume([(0.5, 0.5, 0.5), (0.75, 0.25, 0.5)]) == pytest.approx(
        0.5**3 + 0.25 * 0.75 * 0.5 - 0.25 * 0.5 * 0.5
    )


def test_points_beyond_the_reference_add_nothing() -> None:
    assert hypervolume([]) == 0.0
    assert hypervolume([(0.0, 1.2), (1.0, 0.0)]) == 0.0
    assert hypervolume([(0.0, 1.2), (0.5, 0.5)]) == pytest.approx(0.25)
    larger_than_float = find_front([point(0, 0.0, 1100)], LOSS_SIZE, BASELINE)
    assert larger_than_float.hypervolume == 0.0


def test_float_units_leave_losses_and_unknown_figures_as_they_are() -> None:
    measured = point(0, 0.5, 250, latency_ms=5, kl=0.3, drop=0.1)
    names = ("accuracy_loss", "size_bytes", "latency_ms", "kl", "drop")
    baseline = {**BASELINE, "accuracy_loss": 0.25, "drop": 0.0}
    assert in_float_units(measured, names, baseline) == (0.5, 0.25, 0.5, 0.3, 0.1)


def test_no_complete_trial_is_an_error() -> None:
    with pytest.raises(StudyError, match="none of its candidates is complete"):
        find_front([trial(0, state=TrialState.FAILED)], LOSS_SIZE, BASELINE)


def test_unknown_objective_is_named_with_those_that_exist() -> None:
    with pytest.raises(StudyError) as caught:
        find_front(HAND, ("accuracy_loss", "size_byte"), BASELINE)
    assert "'size_byte' (did you mean 'size_bytes'" in str(caught.value)
    assert "accuracy_loss, size_bytes." in str(caught.value)


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_objective_that_one_trial_lacks_is_an_error(value: float | None) -> None:
    metrics = {"accuracy_loss": 0.1} | ({} if value is None else {"size_bytes": value})
    with pytest.raises(StudyError, match="'size_bytes' has no number in candidate #7"):
        find_front([*HAND, trial(7, **metrics)], LOSS_SIZE, BASELINE)


def test_a_missing_metric_that_is_no_objective_is_fine() -> None:
    trials = [dataclasses.replace(HAND[0], metrics={**HAND[0].metrics, "kl": math.nan}), *HAND[1:]]
    assert indices(find_front(trials, LOSS_SIZE, BASELINE)) == [3, 1, 0]


def test_front_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    find_front(HAND, LOSS_SIZE, BASELINE)
    assert capsys.readouterr() == ("", "")


def test_ties_are_broken_by_the_divergence() -> None:
    three = ("accuracy_loss", "size_bytes", "latency_ms")
    rows = [
        trial(0, accuracy_loss=0.1, size_bytes=10.0, latency_ms=3.0, divergence=0.2),
        trial(1, accuracy_loss=0.1, size_bytes=20.0, latency_ms=2.0, divergence=0.1),
    ]
    recommended = {each.alias: each.trial.index for each in find_front(rows, three, {}).recommended}
    assert recommended["accurate"] == 1
    assert recommended["small"] == 0
    assert recommended["balanced"] == 0


# What is recommended where the losses of samples are known


def sampled(index: int, lost: int, size: float, excluded: str = "") -> Trial:
    """Return a trial that loses the first `lost` of 300 samples; its layers are a, b and c."""
    losses = tuple([1.0] * lost + [0.0] * (300 - lost))
    made = trial(
        *(index,),
        excluded=excluded,
        accuracy_loss=lost / 300,
        size_bytes=size,
        size_ratio=size / 1000,
    )
    return dataclasses.replace(made, losses=losses)


FLOAT = sampled(9, 0, 990, "abc")


def test_balanced_is_the_smallest_that_cannot_be_told_from_the_best() -> None:
    # Of 5 flips in one direction nobody can tell, of 8 everybody.
    trials = [sampled(0, 8, 200), sampled(1, 5, 300, "a"), sampled(2, 0, 600, "ab"), FLOAT]
    assert aliases(find_front(trials, LOSS_SIZE, BASELINE))["balanced"] == 1


def test_the_float_model_is_not_recommended() -> None:
    trials = [sampled(0, 20, 300), sampled(1, 3, 700, "a"), FLOAT]
    front = find_front(trials, LOSS_SIZE, BASELINE)
    assert aliases(front) == {"balanced": 1, "accurate": 1, "small": 0}
    assert indices(front) == [9, 1, 0]
    assert aliases(find_front([FLOAT], LOSS_SIZE, BASELINE))["balanced"] == 9


def test_accurate_saves_a_fifth_if_anything_does() -> None:
    trials = [sampled(0, 20, 300), sampled(1, 2, 700, "a"), sampled(2, 0, 950, "ab"), FLOAT]
    assert aliases(find_front(trials, LOSS_SIZE, BASELINE))["accurate"] == 1
    large = [sampled(1, 2, 850, "a"), sampled(2, 0, 950, "ab")]
    assert aliases(find_front(large, LOSS_SIZE, BASELINE))["accurate"] == 2


def test_what_is_ruined_is_not_recommended_while_something_works() -> None:
    trials = [sampled(0, 250, 100), sampled(1, 29, 300, "a"), sampled(2, 0, 600, "ab")]
    assert aliases(find_front(trials, LOSS_SIZE, BASELINE))["small"] == 1
    assert aliases(find_front(trials[:1], LOSS_SIZE, BASELINE))["small"] == 0

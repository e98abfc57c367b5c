"""What a user can accept."""

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from seqto.figures import PREDICTED
from seqto.pareto.limits import ANSWER, Constraint, Gate, front_within, with_answer
from seqto.types import Candidate, Front, Recommendation, Trial, TrialState


def trial(index: int, **metrics: float) -> Trial:
    metrics = {"accuracy_loss": 0.0, "size_ratio": 1.0, "latency_ms": 1.0, **metrics}
    candidate = Candidate((("layer", str(index)),))
    return Trial(f"run-{index}", index, candidate, TrialState.COMPLETE, metrics)


SMALL = trial(0, accuracy_loss=0.05, size_ratio=0.2, latency_ms=3.0)
MIDDLE = trial(1, accuracy_loss=0.01, size_ratio=0.4, latency_ms=2.0)
LARGE = trial(2, accuracy_loss=0.0, size_ratio=0.8, latency_ms=1.0)
FLOAT = trial(3, accuracy_loss=0.0, size_ratio=1.0, latency_ms=4.0)
TRIALS = [SMALL, MIDDLE, LARGE, FLOAT]


def best(trials: list[Trial], **limits: float) -> int | None:
    found = Constraint(**limits).best(trials)
    return None if found is None else found.index


@pytest.mark.parametrize(
    ("limits", "index"),
    [
        # The smallest that is accurate enough; exactly the limit is enough.
        ({"max_accuracy_loss": 1.0}, 0),
        ({"max_accuracy_loss": 0.05}, 0),
        ({"max_accuracy_loss": 0.0499}, 1),
        ({"max_accuracy_loss": 0.01}, 1),
        ({"max_accuracy_loss": 0.0}, 2),
        # The least lossy that is small enough, and of equal ones the smallest.
        ({"max_size_ratio": 0.2}, 0),
        ({"max_size_ratio": 0.199}, None),
        ({"max_size_ratio": 0.4}, 1),
        ({"max_size_ratio": 0.5}, 1),
        ({"max_size_ratio": 2.0}, 2),
        # The least lossy that is fast enough.
        ({"max_latency_ms": 4.0}, 2),
        ({"max_latency_ms": 1.0}, 2),
        ({"max_latency_ms": 0.5}, None),
        # All of them have to be met.
        ({"max_accuracy_loss": 0.05, "max_latency_ms": 1.5}, 2),
        ({"max_accuracy_loss": 0.05, "max_latency_ms": 2.0}, 1),
        ({"max_accuracy_loss": 0.05, "max_latency_ms": 3.0}, 0),
        ({"max_accuracy_loss": 0.02, "max_size_ratio": 0.5}, 1),
        ({"max_accuracy_loss": 0.05, "max_size_ratio": 0.9}, 0),
        ({"max_accuracy_loss": 0.0, "max_size_ratio": 0.5}, None),
    ],
)
def test_best_that_meets_every_limit(limits: dict[str, float], index: int | None) -> None:
    assert best(TRIALS, **limits) == best(TRIALS[::-1], **limits) == index


def test_a_limit_on_latency_alone_takes_the_least_lossy_within_it() -> None:
    assert best([SMALL, MIDDLE], max_latency_ms=3.0) == MIDDLE.index
    assert best([SMALL, FLOAT], max_latency_ms=3.0) == SMALL.index


def test_where_latency_is_traded_off_the_fastest_within_the_loss_is_the_best() -> None:
    limit = Constraint(max_accuracy_loss=0.05)
    assert limit.best(TRIALS, ["accuracy_loss", "latency_ms"]) is LARGE
    assert limit.best(TRIALS, ["accuracy_loss", "size_bytes", "latency_ms"]) is SMALL
    front = Front(("accuracy_loss", "latency_ms"), (SMALL, MIDDLE, LARGE), (), 0.5)
    assert with_answer(front, limit).recommended == (Recommendation(ANSWER, LARGE),)


def test_a_limit_on_what_is_not_traded_off_is_met_by_the_front_if_anything_meets_it() -> None:
    def timed(index: int, loss: float, ratio: float, ms: float) -> Trial:
        sizes = {"size_ratio": ratio, "size_bytes": 1000 * ratio}
        return trial(index, accuracy_loss=loss, latency_ms=ms, **sizes)

    small, slow = timed(0, 0.0, 0.2, 9.0), timed(1, 0.01, 0.1, 9.5)
    quick, worse = timed(2, 0.01, 0.3, 5.0), timed(3, 0.02, 0.4, 5.0)
    trials = [small, slow, quick, worse]

    def front(**limits: float) -> Front:
        objectives, own = ["accuracy_loss", "size_bytes"], {"size_bytes": 1000.0}
        return front_within(trials, objectives, own, Constraint(**limits))

    assert front(max_latency_ms=5.0).members == (quick,)
    assert front(max_latency_ms=5.0).recommended[0] == Recommendation(ANSWER, quick)
    assert front(max_latency_ms=9.0).members == front().members == (small, slow)
    # Where nothing meets it, it is the front of all.
    assert front(max_latency_ms=1.0).members == (small, slow)


def test_the_answer_is_recommended_first() -> None:
    balanced = Recommendation("balanced", MIDDLE)
    front = Front(("accuracy_loss", "size_ratio"), (SMALL, MIDDLE, LARGE), (balanced,), 0.5)
    found = with_answer(front, Constraint(max_accuracy_loss=0.05))
    assert found.recommended == (Recommendation(ANSWER, SMALL), balanced)
    assert with_answer(front, Constraint(max_size_ratio=0.1)) == front
    assert with_answer(front, Constraint()) == front


def test_ties_of_the_loss_are_told_apart_by_divergence_then_size() -> None:
    tied = [
        trial(0, accuracy_loss=0.01, divergence=0.3, size_ratio=0.2),
        trial(1, accuracy_loss=0.01, divergence=0.1, size_ratio=0.4),
        trial(2, accuracy_loss=0.01, divergence=0.1, size_ratio=0.3),
    ]
    assert best(tied, max_size_ratio=0.5) == 2


def test_ties_of_the_size_are_told_apart_by_loss_then_divergence() -> None:
    tied = [
        trial(0, accuracy_loss=0.02, divergence=0.1, size_ratio=0.2),
        trial(1, accuracy_loss=0.01, divergence=0.3, size_ratio=0.2),
        trial(2, accuracy_loss=0.01, divergence=0.2, size_ratio=0.2),
    ]
    assert best(tied, max_accuracy_loss=0.5) == 2


def test_trials_that_failed_or_repeat_another_are_no_answer() -> None:
    failed = Trial("", 7, SMALL.candidate, TrialState.FAILED, failure="it broke")
    again = Trial("", 8, SMALL.candidate, TrialState.COMPLETE, SMALL.metrics, "", duplicate_of=0)
    assert best([failed, again, FLOAT], max_accuracy_loss=1.0) == FLOAT.index
    assert Constraint(max_size_ratio=0.1).nearest([failed, again, FLOAT]) is FLOAT


@pytest.mark.parametrize(
    ("limits", "index"),
    [
        ({"max_size_ratio": 0.1}, 0),
        ({"max_latency_ms": 0.5}, 2),
        # 0.01 is nine times too lossy, and nine is more than the size's three.
        ({"max_accuracy_loss": 0.001, "max_size_ratio": 0.2}, 2),
        ({"max_accuracy_loss": 0.009, "max_size_ratio": 0.3}, 1),
    ],
)
def test_nearest_exceeds_its_worst_limit_by_the_smallest_share(
    limits: dict[str, float], index: int
) -> None:
    constraint = Constraint(**limits)
    assert constraint.best(TRIALS) is None
    assert constraint.nearest(TRIALS).index == index


def test_excess_is_a_share_of_the_limit() -> None:
    constraint = Constraint(max_accuracy_loss=0.02, max_size_ratio=0.5)
    assert constraint.excess({"accuracy_loss": 0.03, "size_ratio": 0.4}) == pytest.approx(0.5)
    assert constraint.excess({"accuracy_loss": 0.03, "size_ratio": 1.0}) == pytest.approx(1.0)
    assert constraint.excess({"accuracy_loss": 0.02, "size_ratio": 0.5}) == 0
    assert Constraint().excess({}) == 0


def test_a_limit_of_nothing_is_exceeded_in_points() -> None:
    close = trial(0, accuracy_loss=0.003, size_ratio=0.3)
    exact = trial(1, accuracy_loss=0.0, size_ratio=0.9)
    assert Constraint(max_accuracy_loss=0, max_size_ratio=0.4).nearest([close, exact]) is close


def test_limits_that_are_not_set_are_none() -> None:
    assert Constraint().limits() == {}
    assert Constraint(max_accuracy_loss=0).limits() == {"accuracy_loss": 0}


# Screened trials: ten sizes, the larger the better; the sixth is the first to agree enough.
FLOAT_BYTES = 1000.0
SCREENED = [
    Trial(
        "",
        at,
        Candidate((("layer", str(at)),)),
        TrialState.COMPLETE,
        {
            "size_bytes": 100.0 * (at + 1),
            "divergence": 0.1 * (9 - at),
            "disagreement": 0.1 if at < 5 else 0.0,
        },
    )
    for at in range(10)
]


def shortened(count: int, screened: list[Trial] = SCREENED, **limits: float) -> list[int]:
    return [each.index for each in Constraint(**limits).shorten(screened, count, FLOAT_BYTES)]


@pytest.mark.parametrize(
    ("count", "indices"),
    [(1, [5]), (2, [5, 8]), (3, [4, 5, 8]), (6, [3, 4, 5, 6, 7, 8]), (20, list(range(10)))],
)
def test_a_limit_on_loss_takes_both_sides_of_where_it_is_met(
    count: int, indices: list[int]
) -> None:
    assert shortened(count, max_accuracy_loss=0.05) == indices


def test_behind_the_limit_steps_grow() -> None:
    # All agree on the few samples of the screen, and hardly all have no loss.
    agreeing = [
        replace(SCREENED[9], index=at, metrics={**SCREENED[9].metrics, **sizes})
        for at in range(40)
        for sizes in [{"size_bytes": 10.0 * at, "divergence": 1.0 / (at + 1)}]
    ]
    assert shortened(6, agreeing, max_accuracy_loss=0.003) == [0, 2, 6, 14, 24, 38]


def test_a_loss_of_exactly_the_limit_passes_the_screen() -> None:
    assert shortened(3, max_accuracy_loss=0.1) == [0, 2, 8]


@pytest.mark.parametrize("count", [1, 2, 3, 6])
def test_a_limit_that_only_the_last_meet_spends_as_many_evaluations(count: int) -> None:
    assert shortened(count, SCREENED[:6], max_accuracy_loss=0.05) == list(range(6 - count, 6))
    # Nor are they saved where no one passes.
    assert shortened(count, SCREENED[:5], max_accuracy_loss=0.05) == list(
        range(max(0, 5 - count), 5)
    )


@pytest.mark.parametrize(
    ("ratio", "indices"),
    [(0.5, [2, 3, 4]), (0.599, [2, 3, 4]), (0.1, [0]), (9.0, [7, 8, 9]), (0.05, [0, 1, 2])],
)
def test_a_limit_on_size_takes_the_largest_within_it(ratio: float, indices: list[int]) -> None:
    assert shortened(3, max_size_ratio=ratio) == indices


def test_a_limit_on_what_is_left_in_float_takes_the_most_accurate_within_it() -> None:
    shared = [
        replace(each, metrics={**each.metrics, "float_share": each.index / 10}) for each in SCREENED
    ]
    assert shortened(3, shared, max_float_share=0.5) == [3, 4, 5]
    assert shortened(3, shared, max_float_share=0.0) == [0]
    # Where none meets it, those that come near.
    assert shortened(3, shared[4:], max_float_share=0.3) == [4, 5, 6]
    assert shortened(3, shared, max_float_share=0.5, max_size_ratio=0.3) == [0, 1, 2]


def test_the_least_lossy_with_so_much_in_float_is_the_best() -> None:
    trials = [
        replace(each, metrics={**each.metrics, "float_share": share})
        for each, share in zip((SMALL, MIDDLE, LARGE), (0.0, 0.1, 0.4), strict=True)
    ]
    assert best(trials, max_float_share=0.1) == MIDDLE.index
    assert best(trials, max_float_share=0.09) == SMALL.index
    # With a limit on the loss too, it is the smallest that meets both.
    assert best(trials, max_float_share=0.1, max_accuracy_loss=1.0) == SMALL.index
    # What was not measured is not met.
    assert best([SMALL, MIDDLE], max_float_share=0.9) is None


def test_a_limit_on_latency_takes_the_smallest_where_nothing_is_predicted() -> None:
    assert shortened(3, max_latency_ms=1.0) == [0, 1, 2]


def test_a_limit_on_latency_takes_the_most_accurate_that_are_predicted_to_meet_it() -> None:
    timed = [
        replace(each, metrics={**each.metrics, PREDICTED: float(each.index)}) for each in SCREENED
    ]
    assert shortened(3, timed, max_latency_ms=6.0) == [4, 5, 6]
    # With a limit on the loss too, those on both sides of it that are fast enough.
    assert shortened(2, timed, max_latency_ms=6.0, max_accuracy_loss=0.05) == [5, 6]
    # Where none is fast enough, the smallest.
    assert shortened(3, timed[4:], max_latency_ms=3.0) == [4, 5, 6]


def test_what_is_not_on_the_front_is_not_evaluated() -> None:
    worse = Trial(
        "",
        10,
        Candidate((("layer", "10"),)),
        TrialState.COMPLETE,
        {"size_bytes": 550.0, "divergence": 0.85, "disagreement": 0.0},
    )
    for limits in ({"max_accuracy_loss": 0.05}, {"max_size_ratio": 0.56}, {"max_latency_ms": 1.0}):
        assert 10 not in shortened(20, [*SCREENED, worse], **limits)


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_accuracy_loss": -0.1},
        {"max_accuracy_loss": 1.1},
        {"max_size_ratio": 0},
        {"max_latency_ms": -1},
        {"max_size": 3},
    ],
)
def test_wrong_limits_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        Constraint(**wrong)


def test_gate_asks_for_a_share_of_the_size_saved() -> None:
    assert Gate(min_size_reduction=0.6).best(TRIALS) is MIDDLE
    assert Gate(min_size_reduction=0.75, max_accuracy_loss=0.01).best(TRIALS) is None
    assert Gate(min_size_reduction=0).best([FLOAT]) is FLOAT


@pytest.mark.parametrize("reduction", [0.1, 0.3, 0.7, 0.9])
def test_exactly_the_limit_passes_the_gate_however_it_is_rounded(reduction: float) -> None:
    exact = trial(0, size_ratio=round(1 - reduction, 3), accuracy_loss=0.1 + 0.2)
    assert Gate(min_size_reduction=reduction, max_accuracy_loss=0.3).best([exact]) is exact
    more = trial(0, size_ratio=round(1 - reduction, 3) + 1e-6)
    assert Gate(min_size_reduction=reduction).best([more]) is None


def test_gate_is_told_in_its_own_words() -> None:
    gate = Gate(max_accuracy_loss=0.01, min_size_reduction=0.7, max_latency_ms=8)
    assert str(gate) == "accuracy_loss <= 0.01, size_reduction >= 0.7, latency_ms <= 8"
    assert str(Gate()) == "" and Gate().limits() == {}


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_accuracy_loss": -0.1},
        {"min_size_reduction": 1.0},
        {"min_size_reduction": -0.1},
        {"max_latency_ms": 0},
        {"max_size_ratio": 0.3},
    ],
)
def test_wrong_gates_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        Gate(**wrong)

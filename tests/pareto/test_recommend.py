"""The rule of the papers' published tool, by hand and on its own results."""

import csv
from collections import defaultdict

import pytest
from real_data import PUBLISHED_RESULTS, requires_published_results
from studies import study, trial

from seqto.pareto.front import find_front
from seqto.pareto.recommend import PAPER, TESTED, rule_of
from seqto.types import RECOMMEND, Front, Trial

LOSS_SIZE = ("accuracy_loss", "size_bytes")
BASELINE = {"size_bytes": 1000.0}


def point(index: int, loss: float, size: float) -> Trial:
    return trial(index, accuracy_loss=loss, size_bytes=size)


FRONT = [point(0, 0.30, 200), point(1, 0.14, 400), point(2, 0.10, 600), point(3, 0.00, 1000)]
FAR = point(4, 1.00, 900)
"""Dominated, but it makes the losses of the front look alike."""


def order(front: Front) -> list[tuple[str, int]]:
    return [(each.alias, each.trial.index) for each in front.recommended]


def test_papers_choices_are_those_nearest_the_ideal() -> None:
    # Shares of the span, by hand: 0 (1, 0), 1 (0.47, 0.25), 2 (0.33, 0.5), 3 (0, 1).
    front = find_front(FRONT, LOSS_SIZE, BASELINE, 3, PAPER)
    assert order(front) == [("balanced", 1), ("balanced-2", 2), ("balanced-3", 0)]


def test_papers_choice_depends_on_candidates_beside_the_front() -> None:
    # Over all candidates a loss of 0.3 is a share of 0.3 only: 0 (0.3, 0), 1 (0.14, 0.25).
    front = find_front([*FRONT, FAR], LOSS_SIZE, BASELINE, 1, PAPER)
    assert [each.index for each in front.members] == [3, 2, 1, 0]
    assert order(front) == [("balanced", 1)]
    farther = point(4, 3.00, 900)
    assert order(find_front([*FRONT, farther], LOSS_SIZE, BASELINE, 1, PAPER)) == [("balanced", 0)]
    assert order(find_front([*FRONT, farther], LOSS_SIZE, BASELINE, 1)) != [("balanced", 0)]


def test_of_equally_near_ones_the_smaller_comes_first() -> None:
    front = find_front([point(0, 0.0, 400), point(1, 0.4, 100)], LOSS_SIZE, BASELINE, 2, PAPER)
    assert order(front) == [("balanced", 1), ("balanced-2", 0)]


def test_a_study_knows_the_rule_that_it_recommended_by() -> None:
    assert rule_of(study(FRONT)) == TESTED
    assert rule_of(study(FRONT, tags={RECOMMEND: "paper"})) == PAPER


@requires_published_results
def test_of_the_published_candidates_the_papers_choices_are_chosen() -> None:
    trials: dict[tuple[str, str, str], list[Trial]] = defaultdict(list)
    for row in rows("published_candidates.csv"):
        loss, size = float(row["dissimilarity_pct"]), float(row["size_mb"])
        trials[data_set(row)].append(point(int(row["index"]), loss, size))
    published: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for row in rows("published_choices.csv"):
        published[data_set(row)].append(int(row["index"]))
    assert (sum(map(len, trials.values())), len(published)) == (1195, 16)
    for which, wanted in published.items():
        front = find_front(trials[which], LOSS_SIZE, {}, len(wanted), PAPER)
        assert [each.trial.index for each in front.recommended] == wanted, which


@requires_published_results
def test_the_papers_tables_have_these_choices() -> None:
    printed = {data_set(row): row for row in rows("paper_tables.csv")}
    for row in rows("published_choices.csv"):
        if row["rank"] == "1":
            table = printed[data_set(row)]
            assert float(row["size_mb"]) == pytest.approx(float(table["selected_mb"]))
            # One of the 16 is printed with another second digit.
            wanted = float(table["selected_dissimilarity_pct"])
            assert float(row["dissimilarity_pct"]) == pytest.approx(wanted, abs=0.08)


def rows(name: str) -> list[dict[str, str]]:
    with (PUBLISHED_RESULTS / name).open(newline="") as file:
        return list(csv.DictReader(file))


def data_set(row: dict[str, str]) -> tuple[str, str, str]:
    return row["model"], row["device"], row["quantization"]


SPEED = ("accuracy_loss", "latency_ms")
FLOAT_TIMES = {"size_bytes": 1000.0, "latency_ms": 10.0}


def timed(index: int, loss: float, ms: float, size: float = 500, excluded: str = "") -> Trial:
    figures = {"accuracy_loss": loss, "latency_ms": ms, "size_bytes": size}
    return trial(index, excluded=excluded, size_ratio=size / 1000, **figures)


def test_only_what_is_surely_faster_than_float_is_recommended_for_its_speed() -> None:
    floating = timed(0, 0.0, 10.0, excluded="abc")
    alike, fast = timed(1, 0.001, 9.8), timed(2, 0.02, 7.0)
    front = find_front([floating, alike, fast], SPEED, FLOAT_TIMES)
    assert [each.index for each in front.members] == [0, 1, 2]
    assert order(front) == [("balanced", 2), ("accurate", 2), ("fast", 2)]


def test_where_nothing_is_faster_the_float_model_is_all_there_is_to_take() -> None:
    floating, slow = timed(0, 0.0, 10.0, excluded="abc"), timed(1, 0.0, 12)
    front = find_front([floating, slow, timed(2, 0.1, 9.9)], SPEED, FLOAT_TIMES)
    assert {index for _, index in order(front)} == {0}
    assert "fast" not in dict(order(front))
    # One that is as good as the float model may have been a little faster by chance.
    front = find_front([floating, timed(1, 0.0, 9.9), slow], SPEED, FLOAT_TIMES)
    assert {index for _, index in order(front)} == {1}


def test_a_small_one_is_recommended_for_its_size_even_if_it_is_slow() -> None:
    three = ("accuracy_loss", "size_bytes", "latency_ms")
    floating = timed(0, 0.0, 10.0, 1000, "abc")
    trials = [floating, timed(1, 0.01, 14.0, 200), timed(2, 0.02, 12.0, 300)]
    front = find_front(trials, three, FLOAT_TIMES, 4)
    assert "fast" not in dict(order(front)) and dict(order(front))["small"] == 1
    trials.append(timed(3, 0.03, 6.0, 400))
    assert dict(order(find_front(trials, three, FLOAT_TIMES, 4)))["fast"] == 3


@pytest.mark.parametrize(("larger", "small"), [(201.0, 1), (204.0, 1), (205.0, 0)])
def test_for_next_to_nothing_less_nobody_loses_more(larger: float, small: int) -> None:
    trials = [point(0, 0.05, 200), point(1, 0.02, larger), point(2, 0.001, 300)]
    assert dict(order(find_front(trials, LOSS_SIZE, BASELINE)))["small"] == small

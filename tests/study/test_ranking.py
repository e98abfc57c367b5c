"""In which precisions a study ranks its layers, and what that leaves to its search."""

import numpy as np
import pytest
from tiny_studies import Lab

from seqto.metrics.agreement import class_rows
from seqto.search.budget import BudgetSearch
from seqto.search.ladder import LadderSearch
from seqto.sensitivity.divergence import DivergenceSensitivity
from seqto.study.ranking import ranking
from seqto.study.run import Outcome
from seqto.tracking.memory import MemoryTracker
from seqto.types import SCREENING, Outputs, family

CHOICES = ["coded", "int8", "float32"]


class Forgiving:
    """Tells whether the float model's class is still one of the best three."""

    name = "forgiving"

    def losses(self, reference: Outputs, outputs: Outputs) -> np.ndarray:
        wanted, found = class_rows(reference), class_rows(outputs)
        best = np.argsort(-found, axis=1)[:, :3]
        return (best != wanted.argmax(axis=1)[:, None]).all(axis=1).astype(float)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return Lab.at(
        tmp_path_factory.mktemp("lab"),
        precisions=tuple(CHOICES),
        sensitivity=DivergenceSensitivity(samples=4, precisions=CHOICES),
        search=BudgetSearch(budgets=9, evaluations=6, screens=4),
    )


@pytest.fixture(scope="module")
def outcome(lab: Lab) -> Outcome:
    """Return a study that forgives a lot, so that some candidates lose nothing."""
    return lab.with_metric(Forgiving()).run(MemoryTracker())


def measured(lab: Lab, **settings: object) -> set[str]:
    """Return the kinds of precisions that the ranking predicts."""
    scores = ranking(lab.study(MemoryTracker(), **settings), "")
    assert {*map(family, scores[0].sizes)} == {*map(family, scores[0].costs)}
    return {*map(family, scores[0].costs)}


def test_int8_is_left_out_where_coded_weights_are_smaller_and_do_less_harm(lab: Lab) -> None:
    assert measured(lab) == {"coded", "float32"}


def test_int8_is_ranked_where_its_speed_counts_or_the_search_needs_it(lab: Lab) -> None:
    timed = ["accuracy_loss", "latency_ms", "size_bytes"]
    assert measured(lab, objectives=timed) == {"coded", "int8", "float32"}
    assert measured(lab.with_parts(search=LadderSearch())) == {"coded", "int8", "float32"}


def test_the_fully_quantized_model_is_measured_all_the_same(outcome: Outcome) -> None:
    first = outcome.record.trials[0]
    assert {precision for _, precision in first.candidate.precisions} == {"int8"}


def test_nothing_is_larger_than_one_that_loses_nothing(outcome: Outcome) -> None:
    """And the screening's table tells what was evaluated."""
    trials = outcome.record.trials[1:]
    perfect = [each.metrics["size_bytes"] for each in trials if not each.metrics["accuracy_loss"]]
    assert perfect, "or this model is no test"
    assert min(perfect) * 1.05 >= max(each.metrics["size_bytes"] for each in trials)
    table = outcome.record.tables[SCREENING]
    evaluated = {row["key"] for row in table if row["evaluated"]}
    assert evaluated == {each.candidate.key for each in trials} & {row["key"] for row in table}
    assert len(evaluated) < 6, "some were dropped"


def test_all_are_evaluated_where_more_than_loss_and_size_counts(lab: Lab, outcome: Outcome) -> None:
    objectives = ["accuracy_loss", "size_bytes", "float_share"]
    others = lab.with_metric(Forgiving()).run(MemoryTracker(), objectives=objectives).record.trials
    assert len(others) > len(outcome.record.trials)

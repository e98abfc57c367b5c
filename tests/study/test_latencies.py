"""Studies that ask for latency: predicted, searched for, and timed in turns."""

import json
from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np
import pytest
from tiny_studies import Lab, ProbedDevice

from seqto.errors import DeviceError
from seqto.figures import CONVERSIONS, PREDICTED
from seqto.graph.quantized import quantized_nodes
from seqto.measuring import turns
from seqto.protocols import Program
from seqto.report.wording import in_words
from seqto.search.budget import BudgetSearch
from seqto.search.ladder import LadderSearch
from seqto.sensitivity.divergence import DivergenceSensitivity
from seqto.study import latencies
from seqto.study.run import Outcome
from seqto.tracking.memory import MemoryTracker
from seqto.types import (
    INT8,
    SCREENING,
    Arrays,
    KernelTime,
    Latency,
    Model,
    Profile,
    Trial,
    TrialState,
)

SPEED = ["accuracy_loss", "latency_ms"]
SLOW = "conv0"
"""The layer that is slower in int8."""


class Layered(ProbedDevice):
    """A device on which a float layer takes 2 ms, and one in int8 1 ms, but for one of 4 ms."""

    def latency(self, model: Model) -> float | None:
        """Return what the model takes, in milliseconds."""
        return sum(each.ms for each in self.profile(model, {}))

    def profile(self, model: Model, inputs: Arrays) -> Profile:
        """Return what each layer takes."""
        quantized = quantized_nodes(model)
        return [
            KernelTime(node.name, node.op_type, _ms(node.name, quantized), (node.name,))
            for node in model.proto.graph.node
            if node.op_type in ("Conv", "Gemm")
        ]


def _ms(layer: str, quantized: Collection[str]) -> float:
    return 2.0 if layer not in quantized else 4.0 if layer == SLOW else 1.0


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return Lab.at(
        tmp_path_factory.mktemp("lab"),
        device=Layered(),
        sensitivity=DivergenceSensitivity(samples=4),
        search=BudgetSearch(budgets=6, evaluations=4, screens=4),
    )


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_ROUNDS_OF_LOADS", 1)


@pytest.fixture
def lab(prepared: Lab) -> Iterator[Lab]:
    """Return the lab, its device undisturbed."""
    yield prepared
    prepared.device.__init__()  # type: ignore[misc]


def ms_of(trial: Trial) -> float:
    quantized = [name for name, each in trial.candidate.precisions if each == "int8"]
    return 12.0 - len(quantized) + (3.0 if SLOW in quantized else 0.0)


def run(lab: Lab, tracker: MemoryTracker, **settings: object) -> Outcome:
    return lab.run(tracker, **{"objectives": SPEED, **settings})


def test_fast_candidates_are_found_and_predictions_recorded(lab: Lab) -> None:
    tracker = MemoryTracker()
    outcome = run(lab, tracker)
    study = tracker.studies[outcome.record.id]
    assert {latencies.DOCUMENT, latencies.TURNS} <= study.files.keys()
    fastest = min(outcome.record.trials, key=ms_of)
    # Full int8 takes 9 ms; without the slow layer it would be 7.
    assert fastest.metrics["latency_ms"] == ms_of(fastest) == 7.0
    assert {each.trial.index for each in outcome.front.recommended} >= {fastest.index}
    assert {each.alias for each in outcome.front.recommended} == {"balanced", "accurate", "fast"}
    for trial in outcome.record.trials:
        assert trial.metrics["latency_ms"] == ms_of(trial)
        assert trial.metrics[PREDICTED] >= trial.metrics[CONVERSIONS] >= 0
    off = [abs(t.metrics[PREDICTED] / t.metrics["latency_ms"] - 1) for t in outcome.record.trials]
    assert study.figures["latency_error"] == pytest.approx(sum(off) / len(off))
    assert all(PREDICTED in row for row in study.tables[SCREENING])
    # The float model is a candidate here: what is slower than it is not on the front.
    assert any(each.candidate.is_float for each in outcome.front.members)
    assert max(each.metrics["latency_ms"] for each in outcome.front.members) <= 12.0


def test_a_resumed_study_asks_for_the_same_and_times_nothing_again(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker = MemoryTracker()
    first = run(lab, tracker)
    monkeypatch.setattr(latencies, "find_latency_model", lambda *_: pytest.fail("profiled again"))
    monkeypatch.setattr(latencies, "time_in_turns", lambda *_: pytest.fail("timed again"))
    again = run(lab, tracker)
    assert again.record.id == first.record.id and again.measured == 0
    assert [each.candidate for each in again.front.members] == [
        each.candidate for each in first.front.members
    ]


def test_a_study_that_does_not_ask_for_latency_pays_nothing_for_it(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("find_latency_model", "time_in_turns"):
        monkeypatch.setattr(latencies, name, lambda *_: pytest.fail("not asked for"))
    outcome = lab.run(MemoryTracker())
    assert not any(PREDICTED in each.metrics for each in outcome.record.trials)
    # Nor does a gate change what is searched for.
    lab.run(MemoryTracker(), gate={"max_latency_ms": 5.0})


def test_a_limit_on_latency_is_searched_for(lab: Lab) -> None:
    outcome = lab.run(MemoryTracker(), constraint={"max_latency_ms": 9.5})
    # Most evaluations go to what meets it.
    meeting = [each for each in outcome.record.trials if each.metrics["latency_ms"] <= 9.5]
    assert len(meeting) > len(outcome.record.trials) / 2
    answer = outcome.front.recommended[0]
    assert answer.alias == "answer" and answer.trial.metrics["latency_ms"] <= 9.5


def test_other_searches_say_that_they_only_measure(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    ladder = lab.with_parts(search=LadderSearch(step=3))
    outcome = run(ladder, MemoryTracker())
    assert "search=ladder does not look for fast candidates" in caplog.text
    assert all(each.metrics["latency_ms"] == ms_of(each) for each in outcome.record.trials)


def test_a_device_that_cannot_be_predicted_is_named_and_searched_as_before(
    lab: Lab, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise DeviceError("no profile today")

    monkeypatch.setattr(latencies, "find_latency_model", broken)
    outcome = run(lab, MemoryTracker())
    assert "no profile today" in caplog.text
    assert "On cpu latency cannot be predicted" in caplog.text
    assert all("latency_ms" in each.metrics for each in outcome.record.trials)
    assert len(outcome.record.trials) > 2


def test_a_device_that_fails_at_the_end_leaves_the_latencies_that_there_are(
    lab: Lab, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise DeviceError("gone")

    monkeypatch.setattr(latencies, "time_in_turns", broken)
    outcome = run(lab, MemoryTracker())
    assert "not in turns: gone" in caplog.text
    assert all(each.metrics["latency_ms"] == ms_of(each) for each in outcome.record.trials)


def test_trading_off_latency_is_another_study_only_where_it_is_searched_for(lab: Lab) -> None:
    def keys(which: Lab) -> set[str]:
        plain, timed = which.study(MemoryTracker()), which.study(MemoryTracker(), objectives=SPEED)
        return {plain.key, timed.key}

    assert len(keys(lab)) == 2
    assert len(keys(lab.with_parts(search=LadderSearch()))) == 1
    three = lab.study(MemoryTracker(), objectives=[*SPEED, "size_bytes"])
    assert three.key not in keys(lab)


def test_three_objectives_have_small_and_fast_members(lab: Lab) -> None:
    wider = lab.with_parts(
        precisions=("coded", "int8", "float32"),
        sensitivity=DivergenceSensitivity(samples=4, precisions=["coded", "int8", "float32"]),
        search=BudgetSearch(budgets=9, evaluations=6, screens=4),
    )
    outcome = run(wider, MemoryTracker(), objectives=[*SPEED, "size_bytes"])
    members = outcome.front.members
    small = min(members, key=lambda each: each.metrics["size_bytes"])
    fast = min(members, key=lambda each: each.metrics["latency_ms"])
    assert fast.metrics["latency_ms"] == 7.0
    assert small.metrics["size_bytes"] < fast.metrics["size_bytes"]


class Busy(Layered):
    """A device that other work makes half or a third as fast, for a while, again and again.

    Models with coded weights run like the float model, those in int8 in half the time.
    """

    calls = 0

    def load(self, model: Model) -> Program:
        """Return the model ready to run."""
        return _Turning(self, self._inner.load(model), 10.0 if self.is_float(model) else 5.0)

    def is_float(self, model: Model) -> bool:
        """Return whether nothing runs in integers."""
        return not quantized_nodes(model)

    def slowed(self) -> float:
        """Return by what the next call is slowed down."""
        self.calls += 1
        return (1.0, 2.0, 1.0, 3.0)[self.calls // 41 % 4]


class _Turning:
    """A program of the busy device."""

    turns = 10

    def __init__(self, device: Busy, program: Program, ms: float) -> None:
        self.run, self.close = program.run, program.close
        self._device, self._ms = device, ms

    def times(self, inputs: Arrays, calls: int) -> list[float]:
        return [self._ms * self._device.slowed() for _ in range(calls)]

    def time(self, inputs: Arrays) -> Latency:
        low, median, high = np.percentile(self.times(inputs, 10), [10, 50, 90])
        return Latency(float(median), float(low), float(high))


@pytest.mark.parametrize("objectives", [["accuracy_loss", "size_bytes"], SPEED])
def test_other_work_on_the_machine_makes_nothing_faster_or_slower(
    tmp_path: Path, objectives: list[str]
) -> None:
    choices = ("coded", "int8", "float32")
    lab = Lab.at(
        tmp_path,
        device=Busy(),
        precisions=choices,
        sensitivity=DivergenceSensitivity(samples=4, precisions=choices),
        search=BudgetSearch(budgets=6, evaluations=6, screens=4),
    )
    outcome = lab.run(MemoryTracker(), objectives=objectives)
    record = outcome.record
    same = [each for each in record.trials if INT8 not in dict(each.candidate.precisions).values()]
    assert len(record.trials) > len(same) > 0
    complete = [each for each in record.trials if each.state is TrialState.COMPLETE]
    assert len(complete) > 2
    for trial in complete:
        said = in_words(trial.metrics, record.baseline, "top1")
        assert ("about as fast" if trial in same else "2.0x faster") in said
    recommended = {each.alias: each.trial for each in outcome.front.recommended}
    assert recommended.get("fast") not in same


def test_what_predicts_is_kept_as_json(lab: Lab) -> None:
    tracker = MemoryTracker()
    outcome = run(lab, tracker)
    held = json.loads(tracker.studies[outcome.record.id].files[latencies.DOCUMENT])
    assert held["left_out"] == [] and list(held["models"]) == [""]

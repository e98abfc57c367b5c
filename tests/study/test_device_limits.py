"""Whole studies on a device that lacks operations: they go on without the layers concerned."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from onnx_models import node_names
from tiny_studies import Lab, chain

from seqto.devices.fake import FakeDevice
from seqto.errors import StudyError
from seqto.quantizers.dynamic import DynamicQuantizer
from seqto.search.budget import BudgetSearch
from seqto.search.greedy import GreedySearch
from seqto.search.ladder import LadderSearch
from seqto.search.nsga2 import Nsga2Search
from seqto.sensitivity.divergence import DivergenceSensitivity
from seqto.study.device_limits import DOCUMENT
from seqto.tracking.memory import MemoryTracker
from seqto.types import FLOAT32, TrialState


@pytest.fixture
def tracker() -> Iterator[MemoryTracker]:
    yield MemoryTracker()


def lab(folder: Path, device: FakeDevice, **others: Any) -> Lab:
    """Return a lab of the chain on this device."""
    return Lab.at(folder, chain(3), device=device, **others)


def excluded(tracker: MemoryTracker) -> dict[str, dict[str, Any]]:
    """Return the rows of the only study's document by layer."""
    (study,) = tracker.studies
    document = tracker.read_document(study, DOCUMENT) or {"layers": []}
    return {row["layer"]: row for row in document["layers"]}


def quantized_in_good_trials(outcome: Any) -> set[str]:
    return {
        name
        for trial in outcome.record.trials
        if trial.state is TrialState.COMPLETE
        for name, precision in trial.candidate.precisions
        if precision != FLOAT32
    }


def test_the_model_is_what_these_tests_think() -> None:
    assert {"conv0", "conv1", "conv2", "fc"} <= set(node_names(chain(3)))


def test_a_crash_without_a_name_is_found_by_bisection(
    tmp_path: Path, tracker: MemoryTracker
) -> None:
    outcome = lab(tmp_path, FakeDevice(crashes=["conv1"])).run(tracker)
    rows = excluded(tracker)
    assert set(rows) == {"conv1"}
    row = rows["conv1"]
    assert row["kind"] == "DeviceRunError" and "SIGSEGV" in row["failure"]
    assert row["found_by"] == "bisection" and row["candidate"] == 0
    assert any(each["works"] for each in row["attempts"])
    assert quantized_in_good_trials(outcome) == {"conv0", "conv2", "fc"}
    first = outcome.record.trials[0]
    assert first.state is TrialState.FAILED and "DeviceRunError" in first.failure
    # The rest of the ladder: none, one, two, three of the three layers that are left.
    good = [each for each in outcome.record.trials if each.state is TrialState.COMPLETE]
    assert [len(each.candidate.excluded) for each in good] == [1, 2, 3, 4]
    assert len({each.index for each in outcome.record.trials}) == 5
    assert outcome.front.members


def test_a_rejected_operation_is_found_by_its_name(tmp_path: Path, tracker: MemoryTracker) -> None:
    device = FakeDevice(rejects=["MatMulInteger"])
    outcome = lab(tmp_path, device, quantizer=DynamicQuantizer()).run(tracker)
    rows = excluded(tracker)
    assert set(rows) == {"fc"}
    assert rows["fc"]["kind"] == "DeviceImportError"
    assert rows["fc"]["found_by"] == "operation"
    assert quantized_in_good_trials(outcome) == {"conv0", "conv1", "conv2"}


def test_a_hang_is_found(tmp_path: Path, tracker: MemoryTracker) -> None:
    # Of two layers: each attempt of a search among more costs all the seconds again.
    Lab.at(tmp_path, chain(1), device=FakeDevice(hangs=["conv0"], seconds=3)).run(tracker)
    rows = excluded(tracker)
    assert set(rows) == {"conv0"} and rows["conv0"]["kind"] == "DeviceTimeoutError"


def test_a_broken_link_blames_nobody(tmp_path: Path, tracker: MemoryTracker) -> None:
    with pytest.raises(StudyError, match="failed.*DeviceTransportError"):
        lab(tmp_path, FakeDevice(loses=["conv1"])).run(tracker, max_failed=0.1)
    assert not excluded(tracker)


def test_a_screened_search_goes_on_without_the_layer(
    tmp_path: Path, tracker: MemoryTracker
) -> None:
    others = {
        "search": BudgetSearch(evaluations=4),
        "sensitivity": DivergenceSensitivity(samples=4),
    }
    outcome = lab(tmp_path, FakeDevice(crashes=["conv1"]), **others).run(tracker)
    assert set(excluded(tracker)) == {"conv1"}
    good = [each for each in outcome.record.trials if each.state.is_settled]
    assert len(good) == len({each.candidate.key for each in good}) >= 3
    assert quantized_in_good_trials(outcome) == {"conv0", "conv2", "fc"}
    assert sum(each.state is TrialState.FAILED for each in outcome.record.trials) == 1


def test_every_layer_may_be_ruled_out(tmp_path: Path, tracker: MemoryTracker) -> None:
    outcome = lab(tmp_path, FakeDevice(rejects=["QuantizeLinear"])).run(tracker)
    assert set(excluded(tracker)) == {"conv0", "conv1", "conv2", "fc"}
    assert quantized_in_good_trials(outcome) == set()
    assert len(outcome.front.members) == 1


def test_a_resumed_study_has_not_forgotten(tmp_path: Path, tracker: MemoryTracker) -> None:
    here = lab(tmp_path, FakeDevice(crashes=["conv1"]))

    def interrupt(index: int) -> None:
        if index == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        here.run(tracker, before=interrupt)
    log: list[int] = []
    outcome = here.run(tracker, log)
    assert log == [3, 4], "neither the failed candidate nor a finished one is run again"
    undisturbed = lab(tmp_path, FakeDevice(crashes=["conv1"])).run(MemoryTracker())
    for both in zip(outcome.record.trials, undisturbed.record.trials, strict=True):
        assert len({(each.index, each.candidate, each.state) for each in both}) == 1


SEARCHES = {
    "ladder": LadderSearch(),
    "budget": BudgetSearch(evaluations=4, screens=4),
    "greedy": GreedySearch(evaluations=4, screens=4),
    "nsga2": Nsga2Search(population=4, generations=2, evaluations=4, screens=4),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_a_device_that_runs_no_layer_quantized_is_an_answer(
    name: str, tmp_path: Path, tracker: MemoryTracker, caplog: pytest.LogCaptureFixture
) -> None:
    here = lab(
        tmp_path,
        FakeDevice(rejects=["QuantizeLinear"]),
        search=SEARCHES[name],
        sensitivity=DivergenceSensitivity(samples=4),
    )
    outcome = here.run(tracker)
    assert set(excluded(tracker)) == {"conv0", "conv1", "conv2", "fc"}
    (member,) = outcome.front.members
    assert set(dict(member.candidate.precisions).values()) == {FLOAT32}
    assert member.metrics["accuracy_loss"] == 0
    assert "fake can run no layer of chain quantized" in caplog.text
    assert here.run(tracker).measured == 0, "and it is known when the study is resumed"

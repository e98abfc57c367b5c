"""A study as a whole, with a real model and a tracker in memory: undisturbed, and disturbed."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, cast

import numpy as np
import pytest
from quantizable_models import RandomDataset
from tiny_studies import CONFIG, BlindQuantizer, Lab, chain

from seqto.datasets.digits import DigitsDataset
from seqto.devices.onnxruntime import OnnxRuntimeDevice
from seqto.errors import ConfigError, DeviceError, StudyError, TrackingError
from seqto.measuring.learned import from_document
from seqto.measuring.provenance import FLOAT_TIMES, PROVENANCE
from seqto.measuring.record import Assignment
from seqto.measuring.subject import prepare_subject
from seqto.metrics.agreement import Top1Agreement, TopKAgreement
from seqto.pareto.limits import Constraint
from seqto.pareto.recommend import rule_of
from seqto.protocols import Tracker
from seqto.quantizers.static import StaticQuantizer
from seqto.search.ladder import LadderSearch
from seqto.sensitivity.paper import PaperSensitivity
from seqto.study.explore import LEARNED, RANGES
from seqto.study.run import Outcome, run_study
from seqto.study.settings import StudySettings
from seqto.tracking.memory import MemoryTracker
from seqto.types import (
    REGISTERED,
    Front,
    LayerScore,
    Model,
    StudyPlan,
    StudyRecord,
    TrialState,
    sha256,
)

COUNT = 7
"""Candidates of the ladder over the chain's six layers."""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """Return a lab whose cache is warm."""
    return Lab.at(tmp_path_factory.mktemp("lab"))


@pytest.fixture
def lab(prepared: Lab) -> Iterator[Lab]:
    """Return the lab, its device undisturbed."""
    yield prepared
    prepared.device.__init__()  # type: ignore[misc]


@pytest.fixture
def tracker() -> MemoryTracker:
    return MemoryTracker()


@pytest.fixture(scope="module")
def undisturbed(prepared: Lab) -> Outcome:
    """Return how the study ends when nothing happens."""
    return prepared.run(MemoryTracker())


def answer(outcome: Outcome) -> list[object]:
    """Return what a front says, latencies excepted: they are never the same."""
    front = outcome.front
    names = ("accuracy_loss", "size_bytes")
    members = [
        (each.index, each.candidate, each.model_sha256, *(each.metrics[name] for name in names))
        for each in front.members
    ]
    recommended = [(each.alias, each.trial.index) for each in front.recommended]
    return [members, recommended, front.hypervolume]


def states(tracker: MemoryTracker) -> list[TrialState]:
    """Return the states of all trials of the only study, also of those that were run again."""
    (study,) = tracker.studies.values()
    return [tracker.trial(trial).state for trial in study.trials]


def study_state(tracker: MemoryTracker) -> TrialState:
    """Return the state of the only study."""
    (study,) = tracker.studies.values()
    return study.state


# Undisturbed


def test_study_has_a_front_of_all_its_candidates(undisturbed: Outcome) -> None:
    trials = undisturbed.record.trials
    assert [trial.index for trial in trials] == list(range(COUNT)) == list(range(len(trials)))
    assert [len(trial.candidate.excluded) for trial in trials] == list(range(COUNT))
    assert {trial.state for trial in trials} == {TrialState.COMPLETE}
    assert undisturbed.measured == COUNT
    assert 2 <= len(undisturbed.front.members) < COUNT, "or this model is no test of a front"
    assert undisturbed.front.members[0].metrics["accuracy_loss"] == 0


def test_stability_of_the_ranking_is_recorded_and_a_low_one_warned_of(
    lab: Lab,
    tracker: MemoryTracker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    lab.run(tracker)
    (held,) = tracker.studies.values()
    assert -1 <= held.figures["sensitivity_stability"] <= 1
    before = len(caplog.records)
    monkeypatch.setattr("seqto.study.analysis.LOW_STABILITY", 2.0)
    lab.run(MemoryTracker())
    assert "ranking is unsure" in caplog.records[before].getMessage()


def test_a_launcher_ends_by_itself(lab: Lab, tracker: MemoryTracker) -> None:
    measured, ended = lab.launch(tracker, []), []

    def launch(study: str, assignments: Sequence[Assignment]) -> Iterator[str]:
        yield from measured(study, assignments)
        ended.extend(assignments)

    study = lab.study(tracker, batch=3)
    run_study(study, launch, lambda *_: None, lambda *_: [], CONFIG)
    assert len(ended) == COUNT


def test_study_leaves_everything_in_the_tracker(
    lab: Lab, tracker: MemoryTracker, tmp_path: Path
) -> None:
    file = tmp_path / "report.json"
    file.write_text("{}")
    outcome = lab.run(tracker, publish=lambda record, front: [file])
    (held,) = tracker.studies.values()
    assert held.state is TrialState.COMPLETE
    assert held.front == outcome.front
    assert held.files["report.json"] == b"{}"
    assert set(held.files) == {"report.json", PROVENANCE, FLOAT_TIMES, RANGES, LEARNED}
    assert held.plan.config == CONFIG
    assert {score.layer.name for score in held.scores} == set(lab.subject.layer_names)
    assert set(held.baseline) >= {"size_bytes", "accuracy", "latency_ms"}
    aliases = tracker.registered["seqto-chain-cpu-static"]
    assert set(aliases) == {"balanced", "accurate", "small"}


def test_models_of_the_front_are_those_that_were_measured(lab: Lab, tracker: MemoryTracker) -> None:
    outcome = lab.run(tracker)
    stored = {trial: sha256(model) for trial, model in tracker.models.items()}
    assert stored == {trial.id: trial.model_sha256 for trial in outcome.front.members}


def test_plan_tells_what_the_study_is_about(lab: Lab, tracker: MemoryTracker) -> None:
    lab.run(tracker)
    (held,) = tracker.studies.values()
    assert (
        dict(held.plan.tags).items()
        >= {
            "seqto.model": "chain",
            "seqto.device": "cpu",
            "seqto.quantization": "static",
            "seqto.search": "ladder",
            "seqto.dataset": "digits",
            "seqto.metric": "top1",
        }.items()
    )
    assert held.plan.tags["seqto.device.runtime"].startswith("onnxruntime ")
    params = dict(held.plan.params)
    assert (params["search.step"], params["search.maximum"]) == ("1", "null")
    assert params["dataset.evaluation_size"] == "200"
    assert params["model.path"].endswith("chain.onnx"), "also what identifies nothing"
    assert params["quantization._target_"] == "seqto.quantizers.static.StaticQuantizer"
    assert (params["constraint.max_accuracy_loss"], params["precisions"]) == (
        *("null", "['int8', 'float32']"),
    )


def test_progress_is_told_candidate_by_candidate(lab: Lab, tracker: MemoryTracker) -> None:
    seen: list[tuple[int, int, int]] = []
    lab.run(
        tracker, watch=lambda trial, done, total: seen.append((trial.index, done, total)), batch=3
    )
    assert [(index, done) for index, done, _ in seen] == [(at, at + 1) for at in range(COUNT)]
    assert {total for _, _, total in seen} == {COUNT}


def test_batches_give_the_same_front(
    lab: Lab, tracker: MemoryTracker, undisturbed: Outcome
) -> None:
    batches: list[int] = []
    launch = lab.launch(tracker, [])

    def counted(study: str, assignments: Any) -> list[str]:
        batches.append(len(assignments))
        # As if the last one had been the first to end.
        return [*launch(study, assignments)][::-1]

    told: list[int] = []
    outcome = run_study(
        lab.study(tracker, batch=3),
        counted,
        lambda trial, done, total: told.append(trial.index),
        lambda *_: [],
        CONFIG,
    )
    assert batches == [3, 3, 1]
    assert told == list(range(COUNT)), "the search is told in the order of its asking"
    assert answer(outcome) == answer(undisturbed)


@pytest.mark.parametrize(
    ("name", "registered"),
    [("chain", "seqto-chain-cpu-static"), ("a/b:c", "seqto-a-b-c-cpu-static")],
)
def test_models_are_registered_under_a_name_that_registries_take(
    lab: Lab, tracker: MemoryTracker, name: str, registered: str
) -> None:
    source = replace(lab.parts.source, name=name)  # type: ignore[type-var]
    assert lab.with_parts(source=source).study(tracker).name == registered


def test_models_are_not_registered_where_that_is_not_wanted(
    lab: Lab, tracker: MemoryTracker
) -> None:
    lab.run(tracker, register_models=False)
    assert not tracker.registered
    assert tracker.models


# Interrupted and run again


class Killed(BaseException):
    """Stands for SIGKILL."""


class MortalTracker:
    """A tracker whose process is killed at its n-th call: nothing is written from then on."""

    def __init__(self, inner: MemoryTracker, calls: int) -> None:
        self._inner = inner
        self.left = calls

    def __getattr__(self, name: str) -> Callable[..., object]:
        method = getattr(self._inner, name)

        def call(*args: object) -> object:
            self.left -= 1
            if self.left < 0:
                raise Killed
            result: object = method(*args)
            return result

        return call


def raising(error: BaseException, wanted: int) -> Callable[[int], None]:
    """Return what raises the error before the wanted candidate."""

    def before(index: int) -> None:
        if index == wanted:
            raise error

    return before


@pytest.mark.parametrize("at", range(COUNT))
def test_study_goes_on_after_ctrl_c_between_candidates(
    lab: Lab, tracker: MemoryTracker, undisturbed: Outcome, at: int
) -> None:
    with pytest.raises(KeyboardInterrupt):
        lab.run(tracker, before=raising(KeyboardInterrupt(), at))
    assert study_state(tracker) is TrialState.KILLED
    assert states(tracker) == [TrialState.COMPLETE] * at
    again: list[int] = []
    outcome = lab.run(tracker, again)
    assert again == list(range(at, COUNT))
    assert outcome.measured == COUNT - at
    assert answer(outcome) == answer(undisturbed)
    assert study_state(tracker) is TrialState.COMPLETE


@pytest.mark.parametrize("at", [0, 3, COUNT - 1])
def test_study_goes_on_after_ctrl_c_within_a_candidate(
    lab: Lab, tracker: MemoryTracker, undisturbed: Outcome, at: int
) -> None:
    lab.device.disturb = lambda: interrupt_at(lab, at)
    with pytest.raises(KeyboardInterrupt):
        lab.run(tracker)
    assert study_state(tracker) is TrialState.KILLED
    assert states(tracker) == [*[TrialState.COMPLETE] * at, TrialState.KILLED]
    lab.device.disturb = lambda: None
    again: list[int] = []
    assert answer(lab.run(tracker, again)) == answer(undisturbed)
    assert again == list(range(at, COUNT))


def interrupt_at(lab: Lab, index: int) -> None:
    if lab.device.index == index:
        raise KeyboardInterrupt


def test_ctrl_c_as_a_study_is_opened_leaves_none_running(
    lab: Lab, tracker: MemoryTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tracker.open_study

    def interrupted(plan: StudyPlan, resume: bool) -> str:
        os.kill(os.getpid(), signal.SIGINT)
        return real(plan, resume)

    monkeypatch.setattr(tracker, "open_study", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lab.run(tracker)
    assert study_state(tracker) is TrialState.KILLED


def test_failure_to_record_is_not_the_candidates(
    lab: Lab, tracker: MemoryTracker, undisturbed: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> NoReturn:
        raise TrackingError("the store is full")

    with monkeypatch.context() as patch, pytest.raises(TrackingError, match="full"):
        patch.setattr(tracker, "finish_trial", fail)
        lab.run(tracker)
    assert study_state(tracker) is TrialState.FAILED
    assert states(tracker) == [TrialState.KILLED]
    assert answer(lab.run(tracker)) == answer(undisturbed)


def test_study_goes_on_after_a_kill_at_any_point(lab: Lab) -> None:
    # Few candidates: each one adds calls, and each call a study and its resumption.
    short, count, calls = lab.with_parts(search=LadderSearch(step=3)), 3, 0
    undisturbed = short.run(MemoryTracker())
    while True:
        tracker = MemoryTracker()
        mortal = MortalTracker(tracker, calls)
        try:
            short.run(cast(Tracker, mortal))
        except Killed:
            pass
        else:
            break
        ended = [study.state for study in tracker.studies.values()]
        assert TrialState.COMPLETE not in ended, f"looks finished after {calls} calls"
        done = states(tracker).count(TrialState.COMPLETE) if ended else 0
        again: list[int] = []
        outcome = short.run(tracker, again)
        assert again == list(range(done, count)), f"after {calls} calls"
        assert answer(outcome) == answer(undisturbed), f"after {calls} calls"
        assert study_state(tracker) is TrialState.COMPLETE
        assert TrialState.RUNNING not in states(tracker), f"after {calls} calls"
        calls += 1
    assert calls > 4 * count, "a candidate takes more than four calls"


@pytest.mark.parametrize(
    ("error", "state"),
    [(ValueError("full disk"), TrialState.FAILED), (KeyboardInterrupt(), TrialState.KILLED)],
)
@pytest.mark.parametrize("step", ["publish", "log_front", "log_model", "register"])
def test_final_step_that_broke_is_done_again_without_measuring(
    lab: Lab,
    tracker: MemoryTracker,
    undisturbed: Outcome,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    state: TrialState,
    step: str,
) -> None:
    def fail(*args: object) -> NoReturn:
        raise error

    with monkeypatch.context() as patch, pytest.raises(type(error)):
        if step == "publish":
            lab.run(tracker, publish=fail)
        else:
            patch.setattr(tracker, step, fail)
            lab.run(tracker)
    assert study_state(tracker) is state
    again: list[int] = []
    outcome = lab.run(tracker, again)
    assert (again, outcome.measured) == ([], 0)
    assert answer(outcome) == answer(undisturbed)
    assert study_state(tracker) is TrialState.COMPLETE


def test_study_goes_on_after_ctrl_c_in_the_analysis(
    lab: Lab, tracker: MemoryTracker, undisturbed: Outcome, tmp_path: Path
) -> None:
    class Interrupted(PaperSensitivity):
        def score(self, *args: object) -> NoReturn:
            raise KeyboardInterrupt

    cold = replace(lab, workspace=replace(lab.workspace, root=tmp_path))
    with pytest.raises(KeyboardInterrupt):
        cold.with_parts(sensitivity=Interrupted()).run(tracker)
    assert study_state(tracker) is TrialState.KILLED
    assert answer(cold.run(tracker)) == answer(undisturbed)


def test_only_a_study_that_registers_models_says_under_which_name(
    lab: Lab, undisturbed: Outcome, tracker: MemoryTracker
) -> None:
    assert undisturbed.record.tags[REGISTERED] == lab.study(tracker).name
    unmet = lab.run(tracker, constraint=Constraint(max_size_ratio=1e-6)).record
    assert REGISTERED not in unmet.tags
    assert REGISTERED not in tracker.read_study(unmet.id).tags


def test_the_study_holds_the_ranges_that_its_jobs_take(lab: Lab, tracker: MemoryTracker) -> None:
    study = lab.run(tracker).record.id
    held = tracker.read_document(study, RANGES)
    assert held == {name: list(pair) for name, pair in lab.subject.ranges.items()} != {}


def test_the_study_holds_what_its_jobs_need_not_learn(lab: Lab, tracker: MemoryTracker) -> None:
    study = lab.run(tracker).record.id
    document = tracker.read_document(study, LEARNED)
    assert document is not None
    held, learned = from_document(document), lab.subject.model.learned
    assert held.keys() == learned.keys() != set()
    for name, array in learned.items():
        np.testing.assert_array_equal(held[name], array)


def test_resumed_study_keeps_the_ranking_it_had(
    lab: Lab,
    tracker: MemoryTracker,
    undisturbed: Outcome,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    score = PaperSensitivity.score

    def turned(*args: Any) -> tuple[LayerScore, ...]:
        return score(*args)[::-1]

    with pytest.raises(KeyboardInterrupt):
        lab.run(tracker, before=raising(KeyboardInterrupt(), 2))
    cold = replace(lab, workspace=replace(lab.workspace, root=tmp_path))
    monkeypatch.setattr(PaperSensitivity, "score", turned)
    assert answer(cold.run(tracker)) == answer(undisturbed)
    assert len(tracker.studies) == 1


def test_complete_study_is_concluded_again_without_measuring(
    lab: Lab, tracker: MemoryTracker, undisturbed: Outcome
) -> None:
    lab.run(tracker)
    loads, again = lab.device.loads, list[int]()
    outcome = lab.run(tracker, again)
    assert (again, outcome.measured) == ([], 0)
    assert lab.device.loads == loads, "not even the float model is run again"
    assert answer(outcome) == answer(undisturbed)


def test_without_resume_a_study_starts_afresh(
    lab: Lab, tracker: MemoryTracker, undisturbed: Outcome
) -> None:
    lab.run(tracker)
    again: list[int] = []
    outcome = lab.run(tracker, again, resume=False)
    assert again == list(range(COUNT))
    assert len(tracker.studies) == 2
    assert answer(outcome) == answer(undisturbed)


def test_other_objectives_are_another_front_of_the_same_candidates(
    lab: Lab, tracker: MemoryTracker
) -> None:
    lab.run(tracker)
    outcome = lab.run(tracker, objectives=["accuracy_loss", "latency_ms"])
    assert outcome.measured == 0
    assert outcome.front.objectives == ("accuracy_loss", "latency_ms")


def test_the_rule_of_the_paper_chooses_otherwise_from_the_same_candidates(
    lab: Lab, tracker: MemoryTracker
) -> None:
    tested = lab.run(tracker)
    outcome = lab.run(tracker, recommend="paper")
    assert outcome.measured == 0 and outcome.front.members == tested.front.members
    aliases = [each.alias for each in outcome.front.recommended]
    assert aliases == ["balanced", "balanced-2", "balanced-3"][: len(outcome.front.members)]
    assert (rule_of(tested.record), rule_of(outcome.record)) == ("tested", "paper")


# Duplicates


def test_exclusion_that_changes_nothing_is_a_duplicate(
    lab: Lab, tracker: MemoryTracker, undisturbed: Outcome
) -> None:
    # The third in the ranking: candidate 3 is the first to exclude it, to no effect.
    ignored = undisturbed.record.scores[2].layer.name
    blind = lab.with_parts(quantizer=BlindQuantizer(lab.parts.quantizer, ignored))
    before = lab.device.loads
    outcome = blind.run(tracker)
    trials = outcome.record.trials
    assert [trial.index for trial in trials] == list(range(COUNT)), "never dropped"
    assert [trial.duplicate_of for trial in trials] == [None, None, None, 2, None, None, None]
    twin, duplicate = trials[2], trials[3]
    assert duplicate.candidate.excluded == tuple(sorted({*twin.candidate.excluded, ignored}))
    assert duplicate.metrics == twin.metrics
    assert duplicate.model_sha256 == twin.model_sha256
    assert duplicate.state is TrialState.COMPLETE
    # The float model, to know its latency, and each candidate but the duplicate, with the float
    # model beside it.
    assert lab.device.loads - before == 1 + 2 * (COUNT - 1), "never measured twice"
    assert duplicate not in outcome.front.members


def test_an_exclusion_that_is_undone_is_warned_of(
    lab: Lab, undisturbed: Outcome, caplog: pytest.LogCaptureFixture
) -> None:
    assert "in integers" not in caplog.text
    ignored = undisturbed.record.scores[2].layer.name
    lab.with_parts(quantizer=BlindQuantizer(lab.parts.quantizer, ignored)).run(MemoryTracker())
    warnings = [each.getMessage() for each in caplog.records if "in integers" in each.getMessage()]
    # Excluded from candidate 3 on; the last one is the float model, and has all layers excluded.
    assert len(warnings) == COUNT - 3
    assert warnings[0] == (
        f"cpu runs 1 layer(s) in integers that candidate 3 leaves in float: {ignored}."
    )


def test_duplicate_is_found_also_where_the_other_one_was_measured_before_a_kill(
    lab: Lab, tracker: MemoryTracker, undisturbed: Outcome
) -> None:
    ignored = undisturbed.record.scores[2].layer.name
    blind = lab.with_parts(quantizer=BlindQuantizer(lab.parts.quantizer, ignored))
    with pytest.raises(KeyboardInterrupt):
        blind.run(tracker, before=raising(KeyboardInterrupt(), 3))
    outcome = blind.run(tracker)
    assert outcome.record.trials[3].duplicate_of == 2
    loads, again = lab.device.loads, list[int]()
    blind.run(tracker, again)
    assert (again, lab.device.loads) == ([], loads), "a duplicate is finished like any other"


# Failures


def failing(lab: Lab, *indexes: int) -> Callable[[], None]:
    """Return what makes the device fail for these candidates."""

    def disturb() -> None:
        if lab.device.index in indexes:
            raise DeviceError(f"no room for candidate {lab.device.index}")

    return disturb


def test_failed_candidates_are_recorded_and_the_study_goes_on(
    lab: Lab, tracker: MemoryTracker
) -> None:
    lab.device.disturb = failing(lab, 0, 4)
    outcome = lab.run(tracker)
    assert study_state(tracker) is TrialState.COMPLETE
    failed = [trial for trial in outcome.record.trials if trial.state is TrialState.FAILED]
    assert [trial.index for trial in failed] == [0, 4]
    assert failed[1].failure == "DeviceError: no room for candidate 4"
    assert not {0, 4} & {trial.index for trial in outcome.front.members}


def test_errors_that_nobody_foresaw_fail_their_candidate_only(
    lab: Lab, tracker: MemoryTracker
) -> None:
    def disturb() -> None:
        if lab.device.index == 1:
            raise ZeroDivisionError("division by zero")

    lab.device.disturb = disturb
    outcome = lab.run(tracker)
    assert outcome.record.trials[1].failure == "ZeroDivisionError: division by zero"


def test_failed_candidates_are_run_again_when_resumed(
    lab: Lab, tracker: MemoryTracker, undisturbed: Outcome
) -> None:
    lab.device.disturb = failing(lab, 0, 4)
    lab.run(tracker)
    lab.device.disturb = lambda: None
    again: list[int] = []
    outcome = lab.run(tracker, again)
    assert again == [0, 4]
    assert answer(outcome) == answer(undisturbed)


def test_too_many_failures_end_the_study_at_once(lab: Lab, tracker: MemoryTracker) -> None:
    lab.device.disturb = failing(lab, 1, 2, 3)
    launched: list[int] = []
    message = r"3 of 7 candidates failed.*study.max_failed=0.3.*\(candidate 3\).*no room for cand"
    with pytest.raises(StudyError, match=message):
        lab.run(tracker, launched, max_failed=0.3)
    assert launched == [0, 1, 2, 3]
    assert study_state(tracker) is TrialState.FAILED


def test_as_many_failures_as_allowed_are_accepted(lab: Lab, tracker: MemoryTracker) -> None:
    lab.device.disturb = failing(lab, 1, 2)
    assert lab.run(tracker, max_failed=2 / 7).front.members
    assert study_state(tracker) is TrialState.COMPLETE


def test_study_without_a_complete_candidate_has_no_answer(lab: Lab, tracker: MemoryTracker) -> None:
    lab.device.disturb = failing(lab, *range(COUNT))
    with pytest.raises(StudyError, match="no front"):
        lab.run(tracker, max_failed=1)
    assert study_state(tracker) is TrialState.FAILED
    assert not tracker.registered


# The key


def test_key_does_not_change_with_where_things_are(lab: Lab, tmp_path: Path) -> None:
    moved = Lab.at(tmp_path / "elsewhere" / "with spaces")
    assert moved.parts.settings["model"]["path"] != lab.parts.settings["model"]["path"]
    assert moved.study(MemoryTracker()).key == lab.study(MemoryTracker()).key


def test_key_changes_with_the_model(lab: Lab, tmp_path: Path) -> None:
    model = chain()
    weights = model.proto.graph.initializer[0]
    weights.raw_data = weights.raw_data[4:] + weights.raw_data[:4]
    other = Lab.at(tmp_path, model)
    assert other.study(MemoryTracker()).key != lab.study(MemoryTracker()).key


def test_key_changes_with_the_data(lab: Lab) -> None:
    def key(seed: int) -> str:
        parts = replace(lab.parts, dataset=RandomDataset(seed=seed))
        subject = prepare_subject(parts, lab.workspace)
        return replace(lab, parts=parts, subject=subject).study(MemoryTracker()).key

    assert key(0) == key(0) != key(1)


@pytest.mark.parametrize(
    "other",
    [
        {"dataset": DigitsDataset(calibration_size=10, evaluation_size=200, chunk_size=7)},
        {"quantizer": StaticQuantizer(reduce_range=True)},
        {"sensitivity": PaperSensitivity(samples=5)},
        {"search": LadderSearch(step=2)},
        {"metric": TopKAgreement()},
        {"metric": Top1Agreement(name="other")},
        {"device": OnnxRuntimeDevice(repeats=2)},
        {"precisions": ("int8", "float16", "float32")},
    ],
    ids=str,
)
def test_key_changes_with_each_field_of_each_part(lab: Lab, other: dict[str, object]) -> None:
    assert lab.with_parts(**other).study(MemoryTracker()).key != lab.study(MemoryTracker()).key


def test_key_changes_with_the_constraint(lab: Lab) -> None:
    limited = lab.study(MemoryTracker(), constraint=Constraint(max_accuracy_loss=0.1))
    assert limited.key != lab.study(MemoryTracker()).key


def test_key_does_not_change_with_who_measures(lab: Lab) -> None:
    keys = {
        lab.with_parts(device=OnnxRuntimeDevice(workers=each)).study(MemoryTracker()).key
        for each in (1, 2)
    }
    assert len(keys) == 1


def test_key_does_not_change_with_how_the_study_is_concluded(lab: Lab) -> None:
    one = lab.study(MemoryTracker())
    changes = {"objectives": ["accuracy_loss", "latency_ms"], "recommend": "paper"}
    two = lab.study(MemoryTracker(), top_k=1, batch=4, **changes)
    assert one.key == two.key


def test_key_changes_with_the_runtime(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    before = lab.study(MemoryTracker()).key
    facts = lab.device.describe()
    monkeypatch.setattr(lab.device, "describe", lambda: {**facts, "runtime": "onnxruntime 9.9"})
    assert lab.study(MemoryTracker()).key != before


# Alone


class Ended:
    """A tracker whose studies another process took over after some trials."""

    def __init__(self, after: int) -> None:
        self.inner, self.checks, self.after = MemoryTracker(), 0, after

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    @contextlib.contextmanager
    def alone(self, key: str) -> Iterator[Callable[[], None]]:
        def check() -> None:
            self.checks += 1
            if self.checks > self.after:
                raise StudyError("took over")

        yield check


def test_study_that_was_taken_over_stops_and_leaves_the_rest_to_the_other(lab: Lab) -> None:
    tracker, log = Ended(after=4), list[int]()
    with pytest.raises(StudyError, match="took over"):
        lab.run(tracker, log, batch=1)
    assert 0 < len(log) < COUNT
    (study,) = tracker.studies.values()
    assert study.state is TrialState.RUNNING, "it is the other's to close"


def test_other_study_may_run_at_the_same_time(lab: Lab, tracker: MemoryTracker) -> None:
    other = lab.with_parts(search=LadderSearch(step=3))

    def also(index: int) -> None:
        if index == 1:
            assert other.run(MemoryTracker()).front.members

    assert lab.run(tracker, before=also).measured == COUNT


# Objectives


def test_objective_that_nothing_measures_is_refused_with_the_choices() -> None:
    with pytest.raises(ConfigError, match=r"'size_byte' \(did you mean 'size_bytes'.*latency_ms"):
        StudySettings(objectives=["accuracy_loss", "size_byte"])


@pytest.mark.parametrize("objectives", [[], ["accuracy_loss"], ["size_bytes", "size_bytes"]])
def test_fewer_than_two_objectives_are_refused(objectives: list[str]) -> None:
    with pytest.raises(ConfigError, match="at least two different ones"):
        StudySettings(objectives=objectives)


def test_latency_may_be_an_objective(lab: Lab, tracker: MemoryTracker) -> None:
    # Only the first and the last are fast, and the last, the float model, loses nothing.
    lab.device.latencies = {layers: 5.0 for layers in range(COUNT)} | {COUNT - 1: 1.0, 0: 2.0}
    outcome = lab.run(tracker, objectives=["accuracy_loss", "latency_ms"])
    assert [trial.index for trial in outcome.front.members] == [COUNT - 1, 0]
    aliases = {each.alias: each.trial.index for each in outcome.front.recommended}
    assert aliases == {"balanced": 0, "accurate": 0, "fast": 0}


def test_labels_are_needed_to_trade_off_accuracy(lab: Lab, tracker: MemoryTracker) -> None:
    parts = replace(lab.parts, dataset=RandomDataset(labelled=False))
    unlabelled = replace(lab, parts=parts, subject=prepare_subject(parts, lab.workspace))
    with pytest.raises(StudyError, match="accuracy_drop"):
        unlabelled.run(tracker, objectives=["accuracy_drop", "size_bytes"])
    assert study_state(tracker) is TrialState.FAILED


# Rebuilding


def test_model_that_cannot_be_rebuilt_as_measured_is_refused(
    lab: Lab, tracker: MemoryTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    quantize = type(lab.parts.quantizer).quantize
    concluding = False

    def changing(self: Any, *args: Any) -> Model:
        model = quantize(self, *args)
        if concluding:
            model.proto.producer_version = "another"
        return model

    def publish(record: StudyRecord, front: Front) -> list[Path]:
        nonlocal concluding
        concluding = True
        return []

    monkeypatch.setattr(type(lab.parts.quantizer), "quantize", changing)
    with pytest.raises(StudyError, match=r"cannot be rebuilt.*study.resume=false"):
        lab.run(tracker, publish=publish)
    assert study_state(tracker) is TrialState.FAILED
    assert not tracker.models and not tracker.registered

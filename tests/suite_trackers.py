"""What every tracker must do; the test of each one subclasses this."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import pytest
from onnx_models import feeds, gemm_model
from tiny_studies import chain

from seqto.errors import TrackingError
from seqto.protocols import Tracker
from seqto.types import (
    SCHEMES,
    SCREENING,
    Candidate,
    DataSplit,
    Front,
    Layer,
    LayerScore,
    Measurement,
    Model,
    Recommendation,
    StudyPlan,
    Table,
    Trial,
    TrialState,
)

ODD_NAMES = (
    "conv",
    'it\'s "quoted"',
    "/features/0/depthwise/Conv:0",
    "Schicht/ünï/层/🙂",
    "a, b=[c] {d} $e %f \\g",
    "  spaces  ",
    "two\nlines",
    "long/" * 2000,
)

PLAN = StudyPlan(
    key="0123456789abcdef",
    name="tiny cpu static",
    tags={"seqto.model": "tiny", "seqto.device": "cpu"},
    params={"quantization.per_channel": "True", "model.path": "here/tiny.onnx"},
    config="model:\n  path: here/tiny.onnx\n",
    data=(
        DataSplit("tiny", "calibration", "c0ffee", "here/it's data", 10),
        DataSplit("tiny", "evaluation", "decade", "here/it's data", 30),
    ),
)


class Inspector(Protocol):
    """What a tracker holds but no part of seqto needs to read again, by the tracker's own means."""

    def study_state(self, study: str) -> TrialState:
        """Return where the study stands."""
        ...

    def front(self, study: str) -> Mapping[str, tuple[int, tuple[str, ...]]]:
        """Return the ids of the trials marked as front members, with their ranks and aliases."""
        ...

    def files(self, study: str) -> Mapping[str, bytes]:
        """Return the files stored with the study, by name."""
        ...

    def note(self, study: str) -> str:
        """Return the text on the study's page."""
        ...

    def models(self, trial: str) -> list[bytes]:
        """Return the models stored with the trial."""
        ...

    def data(self, run: str) -> Mapping[str, tuple[str, str, int]]:
        """Return the name, digest and number of samples of what a study or trial used, by use."""
        ...

    def aliases(self, name: str) -> Mapping[str, str]:
        """Return the trials' ids by alias of this registered model."""
        ...


@dataclass(frozen=True)
class Desk:
    """A tracker with a study in it, and short ways to write trials."""

    tracker: Tracker
    study: str

    def start(
        self, index: int, excluded: tuple[str, ...] | None = None, study: str | None = None
    ) -> str:
        """Start a trial of the layers a, b and c; each index is another candidate."""
        if excluded is None:
            excluded = tuple(name for bit, name in enumerate("abc") if index >> bit & 1)
        candidate = Candidate.excluding("abc", excluded)
        return self.tracker.start_trial(study or self.study, index, candidate, f"{index:03d}")

    def finish(
        self,
        index: int,
        excluded: tuple[str, ...] | None = None,
        *,
        sha256: str = "",
        duplicate_of: int | None = None,
        study: str | None = None,
        **metrics: float,
    ) -> Trial:
        """Start a trial and finish it."""
        trial = self.start(index, excluded, study)
        measured = Measurement(metrics, sha256 or f"{index:064x}")
        self.tracker.finish_trial(trial, measured, duplicate_of)
        return self.tracker.trial(trial)

    def fail(self, index: int, state: TrialState = TrialState.FAILED) -> Trial:
        """Start a trial and end it."""
        trial = self.start(index)
        self.tracker.end_trial(trial, state, "DeviceError: out of memory")
        return self.tracker.trial(trial)

    def chosen(self) -> list[str]:
        """Return the ids of the study's trials, as the tracker lists them."""
        return [trial.id for trial in self.tracker.trials(self.study)]


class TrackerSuite:
    """Subclasses give the fixtures `tracker`, without studies in it, and its `inspector`."""

    @pytest.fixture
    def tracker(self) -> Tracker:
        """Return the tracker to test."""
        raise NotImplementedError

    @pytest.fixture
    def inspector(self, tracker: Tracker) -> Inspector:
        """Return what looks into that tracker."""
        raise NotImplementedError

    @pytest.fixture
    def desk(self, tracker: Tracker) -> Desk:
        """Return the tracker with a study opened."""
        return Desk(tracker, tracker.open_study(PLAN, True))

    @pytest.fixture
    def registered_name(self, request: pytest.FixtureRequest) -> str:
        """Return a name of this test's own, with a quote as a file's name may have."""
        return f"seqto-{request.node.name}-it's-cpu"

    # Opening and closing

    def test_new_study_runs_and_is_empty(self, desk: Desk, inspector: Inspector) -> None:
        assert inspector.study_state(desk.study) is TrialState.RUNNING
        record = desk.tracker.read_study(desk.study)
        assert (record.id, record.key) == (desk.study, PLAN.key)
        assert (record.trials, record.scores, dict(record.baseline)) == ((), (), {})

    def test_record_has_the_tags_of_the_plan(self, desk: Desk) -> None:
        tags = desk.tracker.read_study(desk.study).tags
        own = {"seqto.kind": "study", "seqto.key": PLAN.key}
        assert dict(tags) == {**PLAN.tags, **own}

    def test_further_tags_replace_those_of_the_same_name(self, desk: Desk) -> None:
        desk.tracker.tag_study(desk.study, {"seqto.gate": "failed", "seqto.odd": "it's <b>"})
        desk.tracker.tag_study(desk.study, {"seqto.gate": "passed"})
        tags = desk.tracker.read_study(desk.study).tags
        assert (tags["seqto.gate"], tags["seqto.odd"]) == ("passed", "it's <b>")
        assert tags["seqto.model"] == "tiny"

    def test_data_is_recorded_by_its_use_also_when_resumed(
        self, desk: Desk, inspector: Inspector
    ) -> None:
        used = {"calibration": ("tiny", "c0ffee", 10), "evaluation": ("tiny", "decade", 30)}
        assert inspector.data(desk.study) == used
        desk.tracker.open_study(PLAN, True)
        assert inspector.data(desk.study) == used

    @pytest.mark.parametrize("state", [TrialState.COMPLETE, TrialState.FAILED, TrialState.KILLED])
    def test_study_ends_as_told_and_runs_again_when_resumed(
        self, desk: Desk, inspector: Inspector, state: TrialState
    ) -> None:
        desk.tracker.close_study(desk.study, state)
        assert inspector.study_state(desk.study) is state
        assert desk.tracker.open_study(PLAN, True) == desk.study
        assert inspector.study_state(desk.study) is TrialState.RUNNING

    def test_study_that_was_cut_off_is_resumed(self, desk: Desk) -> None:
        assert desk.tracker.open_study(PLAN, True) == desk.study

    def test_study_is_resumed_where_paths_have_changed(self, desk: Desk) -> None:
        # The key is the content; MLflow would not take another value for a param.
        moved = replace(PLAN, params={**PLAN.params, "model.path": "there/tiny.onnx"})
        assert desk.tracker.open_study(moved, True) == desk.study

    def test_another_key_is_another_study(self, desk: Desk) -> None:
        desk.finish(0)
        other = desk.tracker.open_study(replace(PLAN, key="fedcba9876543210"), True)
        assert other != desk.study
        assert desk.tracker.trials(other) == ()

    def test_without_resume_a_study_is_new_and_the_next_to_be_resumed(self, desk: Desk) -> None:
        fresh = desk.tracker.open_study(PLAN, False)
        assert fresh != desk.study
        assert desk.tracker.open_study(PLAN, True) == fresh

    def test_resuming_kills_what_was_left_running(self, desk: Desk) -> None:
        done, failed, left = desk.finish(0), desk.fail(1), desk.start(2)
        desk.tracker.open_study(PLAN, True)
        killed = desk.tracker.trial(left)
        assert killed.state is TrialState.KILLED
        assert "interrupted" in killed.failure
        assert desk.tracker.trial(done.id) == done
        assert desk.tracker.trial(failed.id) == failed

    def test_resuming_leaves_other_studies_alone(self, desk: Desk) -> None:
        other = desk.tracker.open_study(replace(PLAN, key="fedcba9876543210"), True)
        trial = desk.start(0, study=other)
        alone = desk.tracker.start_trial(None, 0, Candidate.excluding("a", ()), "alone")
        desk.tracker.open_study(PLAN, True)
        assert desk.tracker.trial(trial).state is TrialState.RUNNING
        assert desk.tracker.trial(alone).state is TrialState.RUNNING

    def test_closing_kills_what_was_left_running(self, desk: Desk) -> None:
        left = desk.start(0)
        desk.tracker.close_study(desk.study, TrialState.FAILED)
        assert desk.tracker.trial(left).state is TrialState.KILLED

    # Trials

    def test_trial_runs_from_its_start(self, desk: Desk) -> None:
        trial = desk.tracker.trial(desk.start(7, ("b",)))
        assert trial.state is TrialState.RUNNING
        assert (trial.index, trial.candidate.excluded) == (7, ("b",))
        assert (dict(trial.metrics), trial.model_sha256, trial.failure) == ({}, "", "")

    def test_finished_trial_has_its_measurement(self, desk: Desk) -> None:
        metrics = {"accuracy_loss": 1 / 3, "size_bytes": 123456789.0, "latency_ms": 1e-5}
        trial = desk.finish(0, sha256="ab" * 32, **metrics)
        assert trial.state is TrialState.COMPLETE
        assert dict(trial.metrics) == metrics, "to the last digit"
        assert (trial.model_sha256, trial.duplicate_of) == ("ab" * 32, None)

    def test_losses_of_the_samples_come_back(self, desk: Desk) -> None:
        losses = (0.0, 1 / 3, 1.0, 0.0)
        trial = desk.start(2)
        measured = Measurement({"accuracy_loss": 1 / 3}, "ab" * 32, losses=losses)
        desk.tracker.finish_trial(trial, measured, None)
        assert desk.tracker.trial(trial).losses == losses
        assert [each.losses for each in desk.tracker.trials(desk.study)] == [losses]

    def test_trials_without_losses_have_none(self, desk: Desk) -> None:
        assert desk.finish(0, accuracy_loss=0.5).losses == ()
        assert desk.tracker.trial(desk.start(1)).losses == ()

    @pytest.mark.parametrize("earlier", [0, 3])
    def test_duplicate_names_the_earlier_trial(self, desk: Desk, earlier: int) -> None:
        trial = desk.finish(4, duplicate_of=earlier, accuracy_loss=0.5)
        assert trial.state is TrialState.COMPLETE
        assert trial.duplicate_of == earlier

    @pytest.mark.parametrize("state", [TrialState.FAILED, TrialState.KILLED])
    def test_ended_trial_says_why(self, desk: Desk, state: TrialState) -> None:
        trial = desk.start(0)
        desk.tracker.end_trial(trial, state, 'DeviceError: it\'s "hot"\nat 99 °C')
        assert desk.tracker.trial(trial).state is state
        assert desk.tracker.trial(trial).failure == 'DeviceError: it\'s "hot"\nat 99 °C'

    def test_stopped_trial_says_what_is_known_of_it(self, desk: Desk) -> None:
        figures = {"accuracy_loss_low": 0.25, "size_bytes": 100.0}
        stopped, killed = desk.start(0), desk.start(1)
        desk.tracker.end_trial(stopped, TrialState.STOPPED, "it is dominated", figures)
        desk.tracker.end_trial(killed, TrialState.KILLED, "by hand")
        found = desk.tracker.trial(stopped)
        assert found.state is TrialState.STOPPED and found.failure == "it is dominated"
        assert dict(found.metrics) == figures and found.losses == ()
        assert desk.tracker.trial(killed).state is TrialState.KILLED
        desk.tracker.open_study(PLAN, True)
        assert desk.tracker.trials(desk.study)[0] == found

    def test_very_long_reason_is_kept_at_least_in_part(self, desk: Desk) -> None:
        trial = desk.start(0)
        desk.tracker.end_trial(trial, TrialState.FAILED, "because " * 5000)
        assert desk.tracker.trial(trial).failure.startswith("because because")

    @pytest.mark.parametrize("excluded", [(), ODD_NAMES[1::2], ODD_NAMES])
    def test_candidate_comes_back_whatever_its_layers_are_called(
        self, desk: Desk, excluded: tuple[str, ...]
    ) -> None:
        candidate = Candidate.excluding(ODD_NAMES, excluded)
        trial = desk.tracker.start_trial(desk.study, 0, candidate, "000")
        desk.tracker.finish_trial(trial, Measurement({"accuracy_loss": 0.0}, "ab" * 32), None)
        assert desk.tracker.trial(trial).candidate == candidate
        assert desk.tracker.trial(trial).candidate.key == candidate.key
        assert desk.tracker.trials(desk.study)[0].candidate == candidate

    @pytest.mark.parametrize("at", range(len(ODD_NAMES)))
    def test_scheme_of_a_candidate_comes_back(self, desk: Desk, at: int) -> None:
        scheme = ODD_NAMES[at]
        candidate = Candidate.of({"a": "int8", "b": "float32"}, scheme)
        trial = desk.tracker.start_trial(desk.study, 0, candidate, "000")
        measured = Measurement({"accuracy_loss": 0.0}, "ab" * 32, {"session.option": "1"})
        desk.tracker.finish_trial(trial, measured, None)
        assert desk.tracker.trial(trial).candidate == candidate
        assert desk.tracker.trial(trial).candidate.key == candidate.key
        assert desk.tracker.trials(desk.study)[0].candidate.scheme == scheme

    def test_trial_of_no_study_is_in_none(self, desk: Desk) -> None:
        trial = desk.tracker.start_trial(None, 0, Candidate.excluding("ab", "a"), "alone")
        desk.tracker.finish_trial(trial, Measurement({"accuracy_loss": 0.25}, "cd" * 32), None)
        assert desk.tracker.trial(trial).metrics["accuracy_loss"] == 0.25
        assert desk.tracker.trials(desk.study) == ()

    def test_trials_are_listed_by_index(self, desk: Desk) -> None:
        for index in (10, 2, 0, 1):
            desk.finish(index)
        assert [trial.index for trial in desk.tracker.trials(desk.study)] == [0, 1, 2, 10]

    def test_trials_of_other_studies_are_not_listed(self, desk: Desk) -> None:
        other = desk.tracker.open_study(PLAN, False)
        mine = desk.finish(0)
        desk.finish(1, study=other)
        assert desk.chosen() == [mine.id]

    def test_later_trial_replaces_one_that_did_not_finish(self, desk: Desk) -> None:
        desk.fail(0, TrialState.KILLED)
        last = desk.fail(0)
        assert desk.chosen() == [last.id]
        done = desk.finish(0)
        assert desk.chosen() == [done.id]

    @pytest.mark.parametrize("state", [TrialState.FAILED, TrialState.KILLED])
    def test_complete_trial_outlasts_a_later_failure(self, desk: Desk, state: TrialState) -> None:
        done = desk.finish(0)
        desk.fail(0, state)
        assert desk.chosen() == [done.id]

    # Twins

    def test_twin_is_the_trial_that_measured_the_same_model(self, desk: Desk) -> None:
        measured = desk.finish(0, sha256="aa" * 32, accuracy_loss=0.125)
        desk.finish(1, sha256="bb" * 32)
        assert desk.tracker.twin(desk.study, "aa" * 32) == measured
        assert desk.tracker.twin(desk.study, "cc" * 32) is None

    def test_twin_is_no_duplicate_itself(self, desk: Desk) -> None:
        desk.finish(1, sha256="aa" * 32, duplicate_of=0)
        assert desk.tracker.twin(desk.study, "aa" * 32) is None
        measured = desk.finish(0, sha256="aa" * 32)
        assert desk.tracker.twin(desk.study, "aa" * 32) == measured

    def test_twin_is_of_the_same_study(self, desk: Desk) -> None:
        other = desk.tracker.open_study(PLAN, False)
        desk.finish(0, sha256="aa" * 32, study=other)
        assert desk.tracker.twin(desk.study, "aa" * 32) is None

    # The record

    def test_analysis_comes_back(self, desk: Desk) -> None:
        scores = tuple(
            LayerScore(Layer(name, "Conv", 10 * at), 1 / (at + 3), {"qdq_err": at / 7, "db": -1.5})
            for at, name in enumerate(ODD_NAMES)
        )
        baseline = {"size_bytes": 1000.0, "accuracy": 0.9, "latency_ms": 1 / 3}
        desk.tracker.log_analysis(desk.study, baseline, scores)
        record = desk.tracker.read_study(desk.study)
        assert record.scores == scores, "in the same order"
        assert dict(record.baseline) == baseline

    def test_analysis_survives_resuming(self, desk: Desk) -> None:
        scores = (LayerScore(Layer("a", "Gemm", 4), 0.5),)
        desk.tracker.log_analysis(desk.study, {"size_bytes": 8.0}, scores)
        desk.tracker.open_study(PLAN, True)
        assert desk.tracker.read_study(desk.study).scores == scores

    def test_latencies_measured_again_take_the_place_of_earlier_ones(self, desk: Desk) -> None:
        desk.tracker.log_analysis(desk.study, {"size_bytes": 8.0, "latency_ms": 9.0}, ())
        first, other = (desk.finish(at, accuracy_loss=0.5, latency_ms=3.0) for at in (0, 1))
        times = {first.id: {"latency_ms": 2.5, "latency_predicted_ms": 2.25}}
        desk.tracker.log_times(desk.study, {"latency_ms": 7.0}, times)
        record = desk.tracker.read_study(desk.study)
        assert dict(record.baseline) == {"size_bytes": 8.0, "latency_ms": 7.0}
        assert record.trials == (
            replace(first, metrics={**first.metrics, **times[first.id]}),
            other,
        )

    def test_record_has_the_trials(self, desk: Desk) -> None:
        done, failed = desk.finish(0, accuracy_loss=0.5), desk.fail(1)
        assert desk.tracker.read_study(desk.study).trials == (done, failed)

    def test_new_study_has_no_tables(self, desk: Desk) -> None:
        assert dict(desk.tracker.read_study(desk.study).tables) == {}

    def test_tables_come_back(self, desk: Desk) -> None:
        tables: dict[str, Table] = {
            SCHEMES: [
                {"scheme": name, "divergence": 1 / (at + 3), "base": at % 2 == 0, "failure": None}
                for at, name in enumerate(ODD_NAMES)
            ],
            SCREENING: [],
        }
        for name, table in tables.items():
            desk.tracker.log_table(desk.study, name, table)
        assert dict(desk.tracker.read_study(desk.study).tables) == tables, "in the same order"
        desk.tracker.open_study(PLAN, True)
        assert dict(desk.tracker.read_study(desk.study).tables) == tables, "also when resumed"

    def test_later_table_replaces_the_one_of_its_name(self, desk: Desk) -> None:
        for number in range(2):
            desk.tracker.log_table(desk.study, SCREENING, [{"key": f"{number}"}] * (2 - number))
        desk.tracker.log_table(desk.study, SCHEMES, [{"scheme": "another"}])
        assert dict(desk.tracker.read_study(desk.study).tables) == {
            SCREENING: [{"key": "1"}],
            SCHEMES: [{"scheme": "another"}],
        }

    def test_logged_table_is_a_copy(self, desk: Desk) -> None:
        row: dict[str, str | float | bool | None] = {"divergence": 0.5}
        desk.tracker.log_table(desk.study, SCHEMES, [row])
        row["divergence"] = 1.5
        assert desk.tracker.read_study(desk.study).tables[SCHEMES] == [{"divergence": 0.5}]

    def test_tables_are_those_of_their_study(self, desk: Desk) -> None:
        desk.tracker.log_table(desk.study, SCHEMES, [{"scheme": "mine"}])
        other = desk.tracker.open_study(PLAN, False)
        assert not desk.tracker.read_study(other).tables

    # The final step

    def test_front_is_marked(self, desk: Desk, inspector: Inspector) -> None:
        first, second, _ = (desk.finish(index) for index in range(3))
        desk.tracker.log_front(desk.study, _front([second, first], balanced=first), [])
        assert inspector.front(desk.study) == {
            second.id: (1, ()),
            first.id: (2, ("balanced",)),
        }

    def test_new_front_unmarks_the_old(self, desk: Desk, inspector: Inspector) -> None:
        first, second, third = (desk.finish(index) for index in range(3))
        desk.tracker.log_front(desk.study, _front([first, second], balanced=second), [])
        desk.tracker.log_front(desk.study, _front([third, second], balanced=third), [])
        assert inspector.front(desk.study) == {
            third.id: (1, ("balanced",)),
            second.id: (2, ()),
        }

    def test_files_are_stored_and_replaced(
        self, desk: Desk, inspector: Inspector, tmp_path: Path
    ) -> None:
        paths = [tmp_path / "report.json", tmp_path / "front.png"]
        front = _front([desk.finish(0)])
        for content in (b"\x00first", b"\xffsecond"):
            for path in paths:
                path.write_bytes(content)
            desk.tracker.log_front(desk.study, front, paths)
        files = inspector.files(desk.study)
        assert files["report.json"] == files["front.png"] == b"\xffsecond"

    def test_model_is_stored_once(self, desk: Desk, inspector: Inspector) -> None:
        # With weights large enough for a tracker to think of storing them apart.
        trial, model = desk.finish(0), chain()
        before = model.to_bytes()
        for _ in range(2):
            _log(desk.tracker, trial, model)
        assert inspector.models(trial.id) == [before]
        assert model.to_bytes() == before, "storing leaves the model in memory as it was"

    def test_registering_again_moves_the_aliases(
        self, desk: Desk, inspector: Inspector, registered_name: str
    ) -> None:
        tracker, name = desk.tracker, registered_name
        first, second = desk.finish(0), desk.finish(1)
        for trial in (first, second):
            _log(tracker, trial, gemm_model())
        once = [Recommendation("balanced", first), Recommendation("small", first)]
        for _ in range(2):
            tracker.register(desk.study, name, once)
            assert inspector.aliases(name) == {"balanced": first.id, "small": first.id}
        tracker.register(desk.study, name, [Recommendation("balanced", second)])
        assert inspector.aliases(name) == {"balanced": second.id, "small": first.id}

    def test_address_names_the_study(self, desk: Desk) -> None:
        assert desk.study in desk.tracker.address(desk.study).url

    def test_pages_are_of_the_study_and_its_front(self, desk: Desk) -> None:
        members = [desk.finish(index, accuracy_loss=index / 2) for index in range(2)]
        pages = desk.tracker.pages(desk.study, _front(members))
        known = {"report", "candidates", "charts", "compare", *(trial.id for trial in members)}
        assert set(pages) <= known
        if "compare" in pages:
            assert desk.study in pages["compare"]

    def test_later_note_replaces_the_earlier(self, desk: Desk, inspector: Inspector) -> None:
        for text in ("first", "second"):
            desk.tracker.log_note(desk.study, text)
        assert inspector.note(desk.study).startswith("second")
        assert "first" not in inspector.note(desk.study)

    # What is not there

    def test_unknown_ids_are_errors(self, tracker: Tracker) -> None:
        with pytest.raises(TrackingError, match="nowhere"):
            tracker.trial("nowhere")
        with pytest.raises(TrackingError, match="nowhere"):
            tracker.read_study("nowhere")
        with pytest.raises(TrackingError, match="nowhere"):
            tracker.trials("nowhere")

    def test_study_is_no_trial(self, desk: Desk) -> None:
        with pytest.raises(TrackingError, match=desk.study):
            desk.tracker.trial(desk.study)

    def test_documents_are_kept_with_the_study(self, tracker: Tracker) -> None:
        study = tracker.open_study(PLAN, resume=True)
        assert tracker.read_document(study, "limits.json") is None
        tracker.log_document(study, "limits.json", {"layers": [{"layer": "/a/Conv", "n": 1}]})
        tracker.log_document(study, "limits.json", {"layers": [{"layer": "/a/Conv", "n": 2}]})
        assert tracker.read_document(study, "limits.json") == {
            "layers": [{"layer": "/a/Conv", "n": 2}]
        }


def _front(members: list[Trial], **recommended: Trial) -> Front:
    named = tuple(Recommendation(alias, trial) for alias, trial in recommended.items())
    return Front(("accuracy_loss", "size_bytes"), tuple(members), named, 0.75)


def _log(tracker: Tracker, trial: Trial, model: Model) -> None:
    tracker.log_model(trial, model, feeds(model, 1), {"runtime": "onnxruntime"})

"""Studies called from Python: real ones, of the embedded model."""

import pickle
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import onnx
import onnxruntime
import pandas
import pytest
from commands import Command

import seqto as door
from seqto.devices.fake import FakeDevice
from seqto.devices.onnxruntime import OnnxRuntimeDevice
from seqto.errors import (
    ConfigError,
    ConstraintError,
    DatasetError,
    MetricError,
    ModelError,
    StudyError,
    TrackingError,
)
from seqto.metrics.agreement import top1
from seqto.models.embedded import EmbeddedModel
from seqto.quantizers.weight_only import WeightOnlyQuantizer
from seqto.search.planned import Planned
from seqto.tracking.stores import global_uri
from seqto.types import Candidate, LayerScore, Outputs

Digits = tuple[np.ndarray, np.ndarray]

QUICK: dict[str, Any] = {
    "search": "ladder",
    "overrides": ["search.step=12", "sensitivity.samples=8"],
    "progress": False,
}
"""Three candidates."""

ALONE: dict[str, Any] = {"tracking": None, "overrides": ["device.repeats=1"]}
"""One candidate that is recorded nowhere."""


@pytest.fixture(scope="module")
def result(digits: Digits, tmp_path_factory: pytest.TempPathFactory, cache: Path) -> door.Result:
    """Return what a study of a model in memory and of arrays finds, recorded nowhere."""
    images, labels = digits
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("nowhere"))
        patch.setenv("SEQTO_CACHE", str(cache))
        model = EmbeddedModel().load().proto
        found = door.tune(
            model, images, labels=labels, max_accuracy_loss=0.05, tracking=None, progress=False
        )
        assert list(Path.cwd().iterdir()) == [], "nothing is recorded, and no store is made"
    return found


def test_best_is_the_smallest_that_meets_the_limit(result: door.Result) -> None:
    meeting = [each for each in result.candidates if (each.loss or 0) <= 0.05]
    assert result.best == min(meeting, key=lambda each: each.size_ratio or 1)
    assert result.best is result.answer
    assert result.best.size_ratio is not None and result.best.size_ratio < 0.5
    assert "answer" in result.best.aliases and result.best.on_front


def test_loss_and_size_are_those_of_the_saved_model(
    result: door.Result, digits: Digits, home: Path
) -> None:
    images, _ = digits
    path = result.best.save(home / "new folder" / "small.onnx")
    assert path.stat().st_size == result.best.size_bytes
    onnx.checker.check_model(onnx.load(path))
    # By plain ONNX Runtime, on all samples: those that evaluated are three quarters of them.
    original = onnxruntime.InferenceSession(EmbeddedModel().load().to_bytes())
    session = result.best.session()
    wanted, found = (each.run(None, {"image": images})[0] for each in (original, session))
    flips = top1(wanted) != top1(found)
    assert result.best.loss is not None
    assert flips.sum() - 50 <= result.best.loss * 150 <= flips.sum() + 1e-9


def test_a_candidate_is_unpacked_into_a_file(digits: Digits, home: Path) -> None:
    images, _ = digits
    coded = next(each for each in WeightOnlyQuantizer().precisions if each.startswith("coded"))
    candidate = door.quantize(
        "digits", images, quantization="weight_only", precisions={coded: ["/dense/Gemm"]}, **ALONE
    )
    stored = candidate.save(home / "stored.onnx")
    plain = candidate.unpack(home / "new folder" / "plain.onnx")
    assert plain == home / "new folder" / "plain.onnx"
    sessions = (onnxruntime.InferenceSession(each) for each in (stored, plain))
    wanted, found = (each.run(None, {"image": images})[0] for each in sessions)
    np.testing.assert_array_equal(found, wanted)
    assert onnx.load(stored).functions and not onnx.load(plain).functions
    assert stored.read_bytes() == candidate.model().SerializeToString(deterministic=True)
    with pytest.raises(ConfigError, match="is a folder"):
        candidate.unpack(home)


def test_session_has_the_options_that_it_was_measured_with(digits: Digits) -> None:
    device = OnnxRuntimeDevice(threads=1, precise_kernels="on", repeats=1)
    images, _ = digits
    candidate = door.quantize("digits", images, device=device, tracking=None)
    options = candidate.session().get_session_options()
    assert options.intra_op_num_threads == 1
    assert candidate.session_options["session.x64quantprecision"] == "1"
    assert options.get_session_config_entry("session.x64quantprecision") == "1"


def test_result_tells_what_was_found(result: door.Result) -> None:
    assert result.run_id is None and result.url is None
    assert {"answer", "balanced", "accurate", "small"} == set(result.recommended)
    assert result.accurate is not None and result.small is not None and result.balanced is not None
    assert result.accurate.loss == min(each.loss or 0 for each in result.front)
    working = [each.size_ratio or 1 for each in result.front if (each.loss or 0) <= 0.1]
    assert result.small.size_ratio == min(working)
    assert [each.index for each in result.candidates] == sorted(
        each.index for each in result.candidates
    )
    assert result.baseline["accuracy"] > 0.9
    first = result.front[0]
    kinds = {each.partition("_")[0] for each in first.precisions.values()}
    assert kinds <= {"coded", "int8", "float16", "float32"}
    assert first.excluded == tuple(
        name for name, each in first.precisions.items() if each == "float32"
    )
    assert first.loss_interval is not None and first.loss_interval[0] <= (first.loss or 0)
    assert first.run_id is None


def test_candidates_cannot_be_changed(result: door.Result) -> None:
    with pytest.raises(AttributeError):
        result.best.loss = 0.0  # type: ignore[misc]


def test_results_can_be_sent_and_put_into_sets(result: door.Result) -> None:
    again = pickle.loads(pickle.dumps(result))
    assert again.front == result.front
    assert again.best.model() == result.best.model()
    assert len({*again.candidates, *result.candidates}) == len(result.candidates)


def test_a_folder_is_no_file_to_save_to(result: door.Result, home: Path) -> None:
    with pytest.raises(ConfigError, match="is a folder: give the path of the file"):
        result.best.save(home)


def test_frame_has_a_row_for_each_candidate(result: door.Result) -> None:
    frame = result.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.index) == [each.index for each in result.candidates]
    assert frame.loc[result.best.index, "accuracy_loss"] == result.best.loss
    assert frame["on_front"].sum() == len(result.front)
    assert frame["size_ratio"].dtype == float


def test_it_shows_itself(result: door.Result) -> None:
    text = repr(result)
    assert text.startswith(f"Take #{result.best.index}, the best with accuracy_loss <= 0.05")
    assert "150 samples" in text and "candidates on the front" in text
    assert result.samples == 150
    assert repr(result.best).startswith(f"<candidate #{result.best.index}: ")
    assert len(repr(result.best)) < 200
    page = result._repr_html_()
    assert page.startswith("<pre") and "data:image/png;base64," in page
    assert f"Take #{result.best.index}" in page
    assert "of the size" in str(result.best)


def test_report_is_a_page(result: door.Result, home: Path) -> None:
    page = result.report()
    assert "<html" in page.read_text() and page.parent.joinpath("front.png").exists()
    assert home not in page.parents
    assert result.report(home / "here") == home / "here" / "report.html"


def test_quiet_is_quiet(digits: Digits, capfd: pytest.CaptureFixture[str]) -> None:
    capfd.readouterr()
    door.tune("digits", digits[0], tracking=None, **QUICK)
    assert capfd.readouterr() == ("", "")


# The same study, typed or called


def figures(front: Sequence[door.TunedCandidate]) -> list[object]:
    """Return what a front says, latencies excepted: they are never the same."""
    return [(each.index, each.precisions, each.loss, each.size_bytes) for each in front]


def key_of(run: str) -> str:
    return mlflow.get_run(run).data.tags["seqto.key"]


def test_typed_and_called_studies_are_the_same(
    seqto: Command, path: Path, digits: Digits, home: Path, migrated_store: Path
) -> None:
    images, labels = digits
    np.savez(home / "samples.npz", image=images, labels=labels)
    words = ["model=local", f"model.path={path}", "dataset=npz", "dataset.path=samples.npz"]
    words += ["dataset.calibration_size=50", "dataset.evaluation_size=100"]
    words += ["constraint.max_accuracy_loss=0.02", "search.evaluations=3"]
    typed = seqto(*words, "-m")
    assert typed.code == 0, typed.err
    keywords: dict[str, Any] = {"calibration_size": 50, "evaluation_size": 100, "evaluations": 3}
    called = door.tune(
        path, home / "samples.npz", max_accuracy_loss=0.02, progress=False, **keywords
    )
    assert called.run_id is not None and called.run_id in typed.out, "it resumed that study"
    # Another study, called first, and typed then.
    fresh = door.tune(path, "samples.npz", max_accuracy_loss=0.03, progress=False, **keywords)
    assert fresh.run_id != called.run_id
    words[6] = "constraint.max_accuracy_loss=0.03"
    again = seqto(*words, "-m")
    total = len(fresh.candidates)
    assert f"{total} of {total} candidates were measured before" in again.out
    assert str(fresh.run_id) in again.out
    key = key_of(str(called.run_id))
    assert key_of(str(fresh.run_id)) != key
    # And without resuming anything: the same key and the same front.
    shutil.copy(migrated_store, home / "other.db")
    apart = door.tune(
        *(path, "samples.npz"),
        max_accuracy_loss=0.02,
        tracking=f"sqlite:///{home}/other.db",
        progress=False,
        **keywords,
    )
    assert apart.run_id != called.run_id
    with global_uri(f"sqlite:///{home}/other.db"):
        assert key_of(str(apart.run_id)) == key
    assert figures(apart.front) == figures(called.front)
    assert figures(door.load_study(str(called.run_id)).front) == figures(called.front)


def test_a_study_goes_on_where_it_stopped(digits: Digits) -> None:
    first = door.tune("digits", digits[0], **QUICK)
    log: list[str] = []

    class Never(OnnxRuntimeDevice):
        def load(self, model: Any) -> Any:
            log.append(model.name)
            return super().load(model)

    again = door.tune("digits", digits[0], **QUICK)
    assert again.run_id == first.run_id
    assert [each.run_id for each in again.candidates] == [each.run_id for each in first.candidates]
    other = door.tune("digits", digits[0], device=Never(), **QUICK)
    assert other.run_id != first.run_id, "another class is another device"


# MLflow as it is set up in the process


def test_the_experiment_that_is_set_is_used(digits: Digits, home: Path) -> None:
    uri = f"sqlite:///{home}/mlflow.db"
    mlflow.set_tracking_uri(uri)
    experiment = mlflow.set_experiment("mine")
    found = door.tune("digits", digits[0], **QUICK)
    assert mlflow.get_run(str(found.run_id)).info.experiment_id == experiment.experiment_id
    assert mlflow.get_tracking_uri() == uri


def test_the_active_run_is_the_parent_and_stays_active(digits: Digits, home: Path) -> None:
    mlflow.set_tracking_uri(f"sqlite:///{home}/mlflow.db")
    mlflow.set_experiment("mine")
    with mlflow.start_run() as above:
        found = door.tune("digits", digits[0], **QUICK)
        active = mlflow.active_run()
        assert active is not None and active.info.run_id == above.info.run_id
        mlflow.log_metric("loss", found.best.loss or 0)
    run = mlflow.get_run(str(found.run_id))
    assert run.data.tags["mlflow.parentRunId"] == above.info.run_id
    assert run.info.experiment_id == above.info.experiment_id
    held = mlflow.get_run(above.info.run_id)
    assert held.info.status == "FINISHED" and "loss" in held.data.metrics


def test_a_resumed_study_is_below_the_run_that_is_active_now(digits: Digits, home: Path) -> None:
    mlflow.set_tracking_uri(f"sqlite:///{home}/mlflow.db")
    parents = []
    for _ in range(2):
        with mlflow.start_run() as above:
            found = door.tune("digits", digits[0], **QUICK)
        parents.append(above.info.run_id)
        tags = mlflow.get_run(str(found.run_id)).data.tags
        assert tags["mlflow.parentRunId"] == above.info.run_id
    assert parents[0] != parents[1]
    names = {each.name for each in mlflow.search_experiments()}
    assert "seqto" not in names, "no experiment is made that nobody uses"
    assert found.url == door.load_study(str(found.run_id)).url


def test_an_experiment_of_another_store_is_told(digits: Digits, home: Path) -> None:
    mlflow.set_tracking_uri(f"sqlite:///{home}/mlflow.db")
    for name in ("one", "two", "three"):
        mlflow.set_experiment(name)
    mlflow.set_tracking_uri(f"sqlite:///{home}/other.db")
    with pytest.raises(TrackingError, match="was called for another store"):
        door.tune("digits", digits[0], **QUICK)


def test_another_store_may_be_named(digits: Digits, home: Path, migrated_store: Path) -> None:
    shutil.copy(migrated_store, home / "other.db")
    found = door.tune("digits", digits[0], tracking=f"sqlite:///{home}/other.db", **QUICK)
    assert not mlflow.is_tracking_uri_set()
    again = door.load_study(str(found.run_id), f"sqlite:///{home}/other.db")
    assert again.best == found.best or again.best.index == found.best.index
    words = [*QUICK["overrides"], f"tracking.uri=sqlite:///{home}/third.db"]
    door.tune("digits", digits[0], **{**QUICK, "overrides": words})
    assert (home / "third.db").exists()


def distance(reference: Outputs, outputs: Outputs) -> np.ndarray:
    """Return a loss that no two candidates share."""
    errors = np.abs(np.array(reference["logits"]) - np.array(outputs["logits"]))
    return np.minimum(errors.mean(axis=1) / 10, 1.0)


def test_a_study_is_loaded_with_the_choices_of_its_rule(digits: Digits, home: Path) -> None:
    words = [*QUICK["overrides"], "recommend=paper"]
    settings = {**QUICK, "overrides": words}
    found = door.tune("digits", digits[0], metric=distance, **settings)
    again = door.load_study(str(found.run_id))
    assert "balanced-2" in found.recommended
    assert {alias: each.index for alias, each in again.recommended.items()} == {
        alias: each.index for alias, each in found.recommended.items()
    }


def test_a_study_is_loaded_as_it_was(digits: Digits, home: Path) -> None:
    found = door.tune("digits", digits[0], labels=digits[1], **QUICK)
    again = door.load_study(str(found.run_id))
    assert again.front == found.front and again.candidates == found.candidates
    assert (again.hypervolume, again.baseline) == (found.hypervolume, found.baseline)
    assert again.url == found.url
    outputs = [each.best.session().run(None, {"image": digits[0]}) for each in (found, again)]
    np.testing.assert_array_equal(*outputs)
    # A study of a version that did not record on how many samples it rests says nothing of it.
    mlflow.tracking.MlflowClient().delete_tag(str(found.run_id), "seqto.evaluation_samples")
    older = door.load_study(str(found.run_id))
    assert older.samples is None and "Evaluated on" not in str(older) + older._repr_html_()
    left = [each for each in again.candidates if not each.on_front]
    for each in left:
        with pytest.raises(StudyError, match=r"build it with seqto\.quantize"):
            each.model()
    with pytest.raises(TrackingError, match="has no run 'nope'"):
        door.load_study("nope")
    with pytest.raises(TrackingError, match="run_id=None is no run"):
        door.load_study(None)  # type: ignore[arg-type]


# Objects of the user's own


@dataclass
class Halves(Planned):
    """A search of two candidates: everything in int8, and every second layer."""

    name: str = "halves"
    screens: int = field(default=0, init=False)
    evaluations: int = field(default=0, init=False)

    def start(self, ranking: Any) -> None:
        """Plan both."""
        scores: list[LayerScore] = list(ranking)
        names = [each.layer.name for each in scores]
        self.plan([Candidate.excluding(names, left) for left in ([], names[::2]) if names])


@dataclass
class Slow:
    """A device of the user's own: the CPU, by another name."""

    name: str = "slow"

    def _cpu(self) -> OnnxRuntimeDevice:
        return OnnxRuntimeDevice(name=self.name, repeats=1, warmup=0)

    def load(self, model: Any) -> Any:
        """Load it on the CPU."""
        return self._cpu().load(model)

    def describe(self) -> Any:
        """Say what the CPU says."""
        return self._cpu().describe()

    def kernels(self, model: Any) -> Any:
        """Say what the CPU says."""
        return self._cpu().kernels(model)


def half_wrong(reference: Outputs, outputs: Outputs) -> np.ndarray:
    """Return a loss of a half for each sample that flips."""
    return (top1(reference["logits"]) != top1(outputs["logits"])) / 2


def test_own_objects_stand_where_names_may(digits: Digits) -> None:
    found = door.tune(
        *("digits", digits[0]),
        device=Slow(),
        search=Halves(),
        metric=half_wrong,
        overrides=["sensitivity.samples=8"],
        progress=False,
    )
    assert [len(each.excluded) for each in found.candidates] == [0, 12]
    tags = mlflow.get_run(str(found.run_id)).data.tags
    assert (tags["seqto.device"], tags["seqto.search"], tags["seqto.metric"]) == (
        *("slow", "halves", "half_wrong"),
    )
    plain = door.quantize("digits", digits[0], tracking=None)
    assert found.candidates[0].loss == (plain.loss or 0) / 2
    params = mlflow.get_run(str(found.run_id)).data.params
    assert params["device._target_"].endswith("Slow")


@pytest.mark.parametrize("search", ["ladder", "budget"])
def test_a_metric_that_raises_ends_the_study_with_its_name(digits: Digits, search: str) -> None:
    def sometimes(reference: Outputs, outputs: Outputs) -> np.ndarray:
        if np.abs(reference["logits"] - outputs["logits"]).mean() > 0:
            raise ValueError("my boom")
        return np.zeros(len(outputs["logits"]))

    with pytest.raises(MetricError, match="metric sometimes raised ValueError: my boom"):
        door.tune("digits", digits[0], metric=sometimes, search=search, progress=False)
    (study,) = mlflow.search_runs(
        search_all_experiments=True,
        filter_string="tags.seqto.kind = 'study'",
        output_format="list",
    )
    assert study.info.status == "FAILED"


def test_labels_that_no_class_has_are_refused(digits: Digits) -> None:
    for wrong in (-1, 10):
        labels = digits[1].copy()
        labels[:] = wrong
        with pytest.raises(DatasetError, match=f"a label is {wrong}, but .* classes 0 to 9"):
            door.tune("digits", digits[0], labels=labels, tracking=None, **QUICK)


def test_a_metric_of_the_users_screens_too(digits: Digits) -> None:
    found = door.tune(*("digits", digits[0]), metric=half_wrong, tracking=None, progress=False)
    complete = [each for each in found.candidates if each.state == "COMPLETE"]
    assert len(complete) > 3
    # Where the task does not foresee losses, the smallest of all may be tried, and be ruined.
    failed = [each for each in found.candidates if each not in complete]
    assert len(failed) <= 1 and all(each.failure.startswith("NotFinite") for each in failed)


# One candidate, and the ranking


def test_rank_gives_the_layers_the_most_hurt_first(digits: Digits) -> None:
    frame = door.rank("digits", digits[0], overrides=["sensitivity.samples=8"])
    assert list(frame.index) == list(range(1, 25)) and frame.index.name == "rank"
    assert list(frame["score"]) == sorted(frame["score"], reverse=True)
    assert {"layer", "op_type", "weight_bytes", "cost_int8", "bytes_int8"} <= set(frame.columns)
    assert frame["layer"].is_unique


def test_a_candidate_is_chosen_by_hand(digits: Digits) -> None:
    images, _ = digits
    chosen = door.quantize("digits", images, excluded=["/dense/Gemm", "/stem/Conv"], tracking=None)
    assert chosen.excluded == ("/dense/Gemm", "/stem/Conv")
    same = door.quantize("digits", images, precisions=chosen.precisions, tracking=None)
    groups = {"float32": ["/dense/Gemm", "/stem/Conv"]}
    also = door.quantize("digits", images, precisions=groups, tracking=None)
    assert same.precisions == also.precisions == chosen.precisions
    assert same.model() == also.model() == chosen.model()
    recorded = door.quantize("digits", images, excluded=[])
    tags = mlflow.get_run(str(recorded.run_id)).data.tags
    assert tags["seqto.kind"] == "candidate"
    with pytest.raises(ConfigError, match="exclude each other"):
        door.quantize("digits", images, excluded=[], precisions={})
    for wrong, text in (
        ({"excluded": "/dense/Gemm"}, "has to be a list"),
        ({"precisions": "int8"}, "has to name layers by precision"),
        ({"precisions": {"flaot16": ["/dense/Gemm"]}}, r"'flaot16' \(did you mean 'float16'"),
        ({"overrides": ["candidate.excluded=[/dense/Gemm]"]}, "chooses one candidate"),
    ):
        with pytest.raises(ConfigError, match=text):
            door.quantize("digits", images, tracking=None, **wrong)


# What goes wrong


@pytest.mark.parametrize(
    ("keywords", "kind", "text"),
    [
        ({"device": "cpuu"}, ConfigError, r"device=cpuu is no choice \(did you mean 'cpu'"),
        ({"max_accuracy_loss": 2}, ConfigError, "constraint.max_accuracy_loss=2 has to be less"),
        ({"max_acuracy_loss": 1}, ConfigError, "there is no keyword 'max_acuracy_loss'"),
        ({"overrides": ["sensitivity.sample=3"]}, ConfigError, "no config key 'sensitivity.sample"),
        ({"overrides": ["dataset.path=x"]}, ConfigError, "dataset.path"),
        ({"precisions": ["int7", "float32"]}, ConfigError, "precisions has 'int7'"),
        ({"quantization": "static", "evaluations": 1}, ConfigError, "search.evaluations=1"),
        ({"samples": np.zeros((40, 3), np.float32)}, DatasetError, "'image'.* does not fit"),
        ({"model": b"no model"}, ModelError, "no ONNX model"),
        ({"model": "nowhere.onnx"}, ModelError, "nowhere.onnx does not exist"),
        ({"samples": "nowhere"}, DatasetError, "nowhere"),
        ({"tracking": "http://127.0.0.1:9"}, TrackingError, "does not answer"),
        ({"tracking": object()}, ConfigError, "tracking is no Tracker"),
        ({"overrides": ["candidate.top=3"]}, ConfigError, r"seqto\.quantize\("),
        ({"overrides": ["candidate.top=0"]}, ConfigError, r"seqto\.quantize\("),
        ({"overrides": ["candidate.unpack=true"]}, ConfigError, r"best\.unpack\("),
        ({"overrides": ["gate.max_accuracy_loss=0.1"]}, ConfigError, "look at the result"),
        (
            {"tracking": None, "overrides": ["tracking.experiment=x"]},
            *(ConfigError, "no effect with tracking=None"),
        ),
        ({"overrides": ["study.max_failed=7"]}, ConfigError, "study.max_failed=7"),
    ],
    ids=lambda each: ",".join(each) if isinstance(each, dict) else "",
)
def test_a_wrong_value_gets_the_error_of_the_command_line(
    digits: Digits, home: Path, keywords: dict[str, Any], kind: type, text: str
) -> None:
    given = {"model": "digits", "samples": digits[0], **keywords}
    with pytest.raises(kind, match=text):
        door.tune(given.pop("model"), given.pop("samples"), progress=False, **given)
    assert {each.name for each in home.iterdir()} == {"mlflow.db"}, "nothing is left behind"


def test_limits_that_nothing_meets_leave_the_result(digits: Digits) -> None:
    found = door.tune("digits", digits[0], max_size_ratio=0.01, tracking=None, **QUICK)
    assert found.answer is None and found.front
    with pytest.raises(ConstraintError, match="No candidate has size_ratio <= 0.01; the nearest"):
        _ = found.best


def test_lost_candidates_are_told_in_the_result(
    digits: Digits, caplog: pytest.LogCaptureFixture
) -> None:
    device = FakeDevice(loses=["Gemm"], warmup=0, repeats=1)
    # All layers in int8, and none.
    ends = {**QUICK, "overrides": ["search.step=24", "sensitivity.samples=8"]}
    found = door.tune("digits", digits[0], device=device, tracking=None, **ends)
    told = "1 of 2 candidates was not measured because the device got lost"
    (gone,) = [each for each in found.candidates if each.failure]
    assert found.lost == (gone,) and gone.failure.startswith("DeviceTransportError")
    assert told in " ".join(str(found).split())
    assert told in " ".join(found._repr_html_().split()) and told in caplog.text


def test_a_candidate_that_failed_by_itself_is_not_lost(digits: Digits) -> None:
    device = FakeDevice(rejects=["Gemm"], warmup=0, repeats=1)
    found = door.tune("digits", digits[0], device=device, tracking=None, **QUICK)
    assert any(each.failure for each in found.candidates)
    assert found.lost == () and "got lost" not in str(found)


# From where it is called


def test_it_works_from_a_thread(digits: Digits) -> None:
    found: list[door.Result] = []
    thread = threading.Thread(
        target=lambda: found.append(door.tune("digits", digits[0], tracking=None, **QUICK))
    )
    thread.start()
    thread.join(timeout=300)
    assert len(found[0].front) >= 1


def test_it_works_in_a_script_without_a_guard(home: Path) -> None:
    script = home / "script.py"
    script.write_text(
        "import seqto\n"
        "result = seqto.tune('digits', overrides=['search=ladder', 'search.step=8'],\n"
        "                    tracking=None, progress=False)\n"
        "print(len(result.candidates), 'candidates')\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "4 candidates\n", "the script is run once"


def test_it_works_in_a_hydra_application(home: Path) -> None:
    (home / "config.yaml").write_text("steps: 12\n")
    (home / "app.py").write_text(
        "import hydra, seqto\n"
        "from hydra.core.hydra_config import HydraConfig\n"
        "@hydra.main(config_path='.', config_name='config', version_base='1.3')\n"
        "def main(config):\n"
        "    words = ['search=ladder', f'search.step={config.steps}']\n"
        "    result = seqto.tune('digits', overrides=words, tracking=None, progress=False)\n"
        "    print(len(result.candidates), HydraConfig.get().job.name)\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "app.py"], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.stdout == "3 app\n", done.stderr


def test_import_is_light() -> None:
    code = (
        "import seqto, sys; print(sorted({'numpy', 'onnx', 'mlflow', 'hydra'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_door_has_a_sign() -> None:
    assert {"tune", "rank", "quantize", "load_study", "Result"} <= set(dir(door))
    with pytest.raises(AttributeError, match="has no attribute 'tun'"):
        door.tun  # noqa: B018

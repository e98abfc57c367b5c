"""What is computed once a study."""

import json
import sys
from dataclasses import field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf
from onnx_models import residual, run
from pydantic.dataclasses import dataclass
from quantizable_models import RandomDataset, attention, shared_weight, with_batch
from refused_models import detector

from seqto.cli.candidate_command import chosen_candidate
from seqto.config.build import Context
from seqto.config.paths import CONF
from seqto.devices.onnxruntime import OnnxRuntimeDevice, OnnxRuntimeProgram
from seqto.errors import DatasetError, MetricError
from seqto.graph.prepare import prepare
from seqto.measuring.evaluate import float_latency
from seqto.measuring.parts import Parts
from seqto.measuring.subject import prepare_subject, rank_layers
from seqto.models.local import LocalModel
from seqto.protocols import Dataset, Quantizer, Sensitivity
from seqto.quantizers.dynamic import DynamicQuantizer
from seqto.quantizers.static import StaticQuantizer
from seqto.search.ladder import LadderSearch
from seqto.sensitivity.paper import PaperSensitivity
from seqto.tasks.classification import Classification
from seqto.tasks.regression import Regression
from seqto.tracking.memory import MemoryTracker
from seqto.types import Candidate, LayerScore, Learned, Model, Ranges, Samples, sha256
from seqto.workspace import Workspace, kept_json


@dataclass
class Calls:
    """What was really computed, in order; it does not identify the parts that log into it."""

    made: list[str] = field(default_factory=list, compare=False)


CALLS = Calls()


@dataclass(kw_only=True)
class CountingQuantizer(StaticQuantizer):
    """The static quantizer, counting its calibrations and what it learns."""

    def learn(self, model: Model, ranges: Ranges, samples: Samples, *others: Any) -> Learned:
        """Count the samples, then learn."""
        CALLS.made.append(f"learn from {len(samples)}")
        return super().learn(model, ranges, samples, *others)

    def calibrate(self, model: Model, samples: Samples) -> Ranges:
        """Count, then calibrate."""
        CALLS.made.append("calibrate")
        return super().calibrate(model, samples)


@dataclass(kw_only=True)
class CountingDevice(OnnxRuntimeDevice):
    """The CPU, counting what it loads."""

    def load(self, model: Model) -> OnnxRuntimeProgram:
        """Count, then load."""
        CALLS.made.append("load")
        return super().load(model)


@dataclass(kw_only=True)
class CountingSensitivity(PaperSensitivity):
    """The paper's sensitivity, counting its analyses."""

    def score(self, *given: Any) -> tuple[LayerScore, ...]:
        """Count, then score."""
        CALLS.made.append("score")
        return super().score(*given)


@pytest.fixture(autouse=True)
def nothing_computed_yet() -> None:
    """Forget what the test before computed."""
    CALLS.made.clear()


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """Return an empty workspace."""
    return Workspace(tmp_path / "workspace")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of the user's model."""
    path = tmp_path / "users" / "model.onnx"
    path.parent.mkdir()
    path.write_bytes(residual().to_bytes())
    return path


def parts(
    path: Path,
    *,
    dataset: Dataset | None = None,
    quantizer: Quantizer | None = None,
    sensitivity: Sensitivity | None = None,
    threads: int = 1,
) -> Parts:
    """Return what a study is made of."""
    return Parts(
        source=LocalModel(path=str(path)),
        dataset=dataset or RandomDataset(),
        quantizer=quantizer or CountingQuantizer(),
        sensitivity=sensitivity or CountingSensitivity(),
        search=LadderSearch(),
        device=CountingDevice(repeats=3, threads=threads),
        task=Classification(),
    )


def test_subject_is_all_that_candidates_share(path: Path, workspace: Workspace) -> None:
    subject = prepare_subject(parts(path), workspace)
    splits = RandomDataset().load([])
    floating = prepare(residual())
    assert subject.original_sha256 == sha256(path.read_bytes())
    assert subject.layer_names == ["stem", "left", "right", "head"]
    assert subject.fingerprint == splits.fingerprint
    assert subject.samples.ids == splits.evaluation.ids
    assert subject.calibration.ids == splits.calibration.ids
    assert set(subject.ranges) >= {"x", "y"}
    assert subject.batch == 2
    np.testing.assert_allclose(
        subject.reference["y"], run(floating, dict(subject.samples.inputs))[0], rtol=1e-4, atol=1e-5
    )
    right = subject.reference["y"].argmax(axis=1) == subject.samples.targets
    assert subject.baseline["size_bytes"] == path.stat().st_size
    assert subject.baseline["accuracy"] == right.mean()


def test_outputs_that_cannot_be_compared_are_refused_before_calibration(
    path: Path, workspace: Workspace
) -> None:
    path.write_bytes(detector().to_bytes())
    with pytest.raises(MetricError, match="'selected' has the shape .* per sample, but"):
        prepare_subject(parts(path), workspace)
    assert CALLS.made == ["load"]


def test_ranges_come_from_the_calibration_split(path: Path, workspace: Workspace) -> None:
    subject = prepare_subject(parts(path), workspace)
    seen = subject.calibration.inputs["x"]
    assert subject.ranges["x"] == (float(seen.min()), float(seen.max()))


def test_without_labels_the_baseline_has_no_accuracy(path: Path, workspace: Workspace) -> None:
    subject = prepare_subject(parts(path, dataset=RandomDataset(labelled=False)), workspace)
    assert set(subject.baseline) == {"size_bytes"}


def test_a_warm_workspace_computes_nothing_again(path: Path, workspace: Workspace) -> None:
    first = prepare_subject(parts(path), workspace)
    ranking = rank_layers(parts(path), first, workspace)
    assert sorted(CALLS.made) == ["calibrate", "learn from 6", "load", "score"]
    # Parts and a workspace made anew, as by another process.
    again = prepare_subject(parts(path), Workspace(workspace.root))
    assert rank_layers(parts(path), again, Workspace(workspace.root)) == ranking
    assert len(CALLS.made) == 4
    assert again.ranges == first.ranges
    assert again.baseline == first.baseline
    np.testing.assert_array_equal(again.reference["y"], first.reference["y"])


def test_given_ranges_are_not_calibrated_again(path: Path, workspace: Workspace) -> None:
    first = prepare_subject(parts(path), workspace)
    given = json.loads(json.dumps(first.ranges))
    CALLS.made.clear()
    # As a job of the study on another machine, whose cache is empty.
    elsewhere = Workspace(workspace.root / "elsewhere")
    again = prepare_subject(parts(path), elsewhere, given, first.model.learned)
    assert CALLS.made == ["load"]
    assert again.ranges == first.ranges


@pytest.mark.parametrize(
    ("changed", "computed"),
    [
        ({"dataset": RandomDataset(seed=1)}, ["calibrate", "learn from 6", "load", "score"]),
        (
            {"quantizer": CountingQuantizer(calibration="percentile")},
            ["calibrate", "learn from 6", "score"],
        ),
        ({"sensitivity": CountingSensitivity(samples=2)}, ["score"]),
        ({"threads": 2}, ["load"]),
        # Another batch may round another way.
        ({"dataset": RandomDataset(chunk_size=1)}, ["load"]),
    ],
)
def test_what_changed_is_computed_again(
    path: Path, workspace: Workspace, changed: dict[str, Any], computed: list[str]
) -> None:
    rank_layers(parts(path), prepare_subject(parts(path), workspace), workspace)
    CALLS.made.clear()
    others = parts(path, **changed)
    rank_layers(others, prepare_subject(others, workspace), workspace)
    assert sorted(CALLS.made) == computed


def test_another_model_is_computed_again(path: Path, workspace: Workspace) -> None:
    prepare_subject(parts(path), workspace)
    model = residual()
    model.proto.graph.initializer[0].raw_data = bytes(
        len(model.proto.graph.initializer[0].raw_data)
    )
    path.write_bytes(model.to_bytes())
    CALLS.made.clear()
    prepare_subject(parts(path), workspace)
    assert sorted(CALLS.made) == ["calibrate", "learn from 6", "load"]


def test_an_interrupted_computation_leaves_nothing_that_looks_finished(
    path: Path, workspace: Workspace
) -> None:
    class Interrupted(CountingQuantizer):
        def calibrate(self, model: Model, samples: Samples) -> Ranges:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare_subject(parts(path, quantizer=Interrupted()), workspace)
    assert prepare_subject(parts(path), workspace).ranges
    assert "calibrate" in CALLS.made


def test_ranking_is_the_sensitivitys(path: Path, workspace: Workspace) -> None:
    given = parts(path)
    subject = prepare_subject(given, workspace)
    found = rank_layers(given, subject, workspace)
    assert [replace(score, sizes={}) for score in found] == list(
        PaperSensitivity().score(
            *(subject.model, subject.layers, StaticQuantizer(), subject.ranges),
            *(subject.calibration, subject.observed, subject.task),
        )
    )
    assert all(set(score.sizes) == {"int8", "float32"} for score in found)


def test_nothing_is_written_outside_the_workspace(
    path: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    rank_layers(parts(path), prepare_subject(parts(path), workspace), workspace)
    assert list(path.parent.iterdir()) == [path]
    kinds = {each.relative_to(workspace.root).parts[0] for each in workspace.root.rglob("*.*")}
    assert kinds == {"learned", "ranges", "reference", "scores"}


def test_what_was_learned_is_kept(path: Path, workspace: Workspace) -> None:
    learned = prepare_subject(parts(path), workspace).model.learned
    assert CALLS.made.count("learn from 6") == 1
    again = prepare_subject(parts(path), workspace).model.learned
    assert CALLS.made.count("learn from 6") == 1
    assert learned.keys() == again.keys() != set()
    for name, array in learned.items():
        np.testing.assert_array_equal(array, again[name])


def test_given_learned_is_not_learned_again(path: Path, workspace: Workspace) -> None:
    given = {"shift": np.ones(3, np.float32)}
    subject = prepare_subject(parts(path), workspace, learned=given)
    assert subject.model.learned is given
    assert not any("learn" in each for each in CALLS.made)


def test_layers_are_judged_on_samples_that_taught_nothing(
    path: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqto.measuring.subject._JUDGED", 1)
    prepare_subject(parts(path), workspace)
    assert "learn from 7" in CALLS.made


def test_another_way_to_quantize_learns_anew(path: Path, workspace: Workspace) -> None:
    prepare_subject(parts(path), workspace)
    prepare_subject(parts(path, quantizer=CountingQuantizer(block_size=16)), workspace)
    assert CALLS.made.count("learn from 6") == 2


def test_stored_ranges_are_json_that_people_can_read(path: Path, workspace: Workspace) -> None:
    subject = prepare_subject(parts(path), workspace)
    (stored,) = (workspace.root / "ranges").iterdir()
    ranges, seal = map(json.loads, stored.read_text().splitlines())
    assert {name: tuple(pair) for name, pair in ranges.items()} == dict(subject.ranges)
    assert seal.startswith("seqto:")


def test_dynamic_quantization_takes_one_sample_at_a_time(path: Path, workspace: Workspace) -> None:
    subject = prepare_subject(parts(path, quantizer=DynamicQuantizer()), workspace)
    assert subject.batch == 1
    assert subject.ranges == {}


def test_a_model_of_batch_1_takes_one_sample_at_a_time(path: Path, workspace: Workspace) -> None:
    path.write_bytes(with_batch(1).to_bytes())
    subject = prepare_subject(parts(path), workspace)
    assert subject.batch == 1
    assert len(subject.reference["y"]) == len(subject.samples) == 10


def test_a_model_of_a_larger_batch_is_fed_exactly_that(path: Path, workspace: Workspace) -> None:
    free = prepare_subject(parts(path), workspace)
    path.write_bytes(with_batch(4).to_bytes())
    subject = prepare_subject(parts(path), workspace)
    assert subject.batch == 4
    assert len(subject.example["x"]) == 4
    assert len(subject.reference["y"]) == len(subject.samples) == 10
    np.testing.assert_allclose(subject.reference["y"], free.reference["y"], rtol=1e-4, atol=1e-5)
    for name, limits in subject.ranges.items():
        assert limits == pytest.approx(free.ranges[name], rel=1e-4, abs=1e-5)


def test_a_larger_batch_needs_two_batches_to_calibrate(path: Path, workspace: Workspace) -> None:
    path.write_bytes(with_batch(8).to_bytes())
    with pytest.raises(DatasetError, match="batches of exactly 8.*calibration_size to 16 or more"):
        prepare_subject(parts(path), workspace)


def test_float_latency_has_the_names_of_the_candidates(path: Path, workspace: Workspace) -> None:
    given = parts(path)
    latency = float_latency(prepare_subject(given, workspace), given.device)
    assert {"latency_ms", "latency_p10_ms", "latency_p90_ms", "load_ms"} <= set(latency)
    assert latency["load_ms"] > 0
    # So small a model may fit into memory that the process holds already.
    assert (latency.get("load_peak_bytes", -1) >= 0) == (sys.platform == "linux")
    assert 0 < latency["latency_p10_ms"] <= latency["latency_ms"] <= latency["latency_p90_ms"]


# Layers that have to have the same precision.


@pytest.fixture
def fused(path: Path) -> Parts:
    """Return the parts of a study of the attention block, whose q, k and v run as one."""
    path.write_bytes(attention().to_bytes())
    return parts(path, dataset=RandomDataset(labelled=False))


def test_layers_that_run_as_one_are_known(fused: Parts, workspace: Workspace) -> None:
    subject = prepare_subject(fused, workspace)
    expected = {"q": "q", "k": "q", "v": "q", "out": ""}
    assert {layer.name: layer.group for layer in subject.layers} == expected
    ranking = rank_layers(fused, subject, workspace)
    assert {score.layer.name: score.layer.group for score in ranking} == expected


def test_layers_that_share_a_weight_are_known(path: Path, workspace: Workspace) -> None:
    path.write_bytes(shared_weight().to_bytes())
    given = replace(parts(path, dataset=RandomDataset(labelled=False)), task=Regression())
    subject = prepare_subject(given, workspace)
    assert [layer.unit for layer in subject.layers] == ["one", "one"]


@pytest.mark.parametrize("stored", [{}, {"group": "of another device", "weight": "w"}])
def test_groups_are_the_devices_whatever_is_stored(
    fused: Parts, workspace: Workspace, stored: dict[str, str]
) -> None:
    subject = prepare_subject(fused, workspace)
    ranking = rank_layers(fused, subject, workspace)
    (file,) = (workspace.root / "scores").iterdir()
    rows = json.loads(file.read_text().splitlines()[0])
    for row in rows:
        kept = {name: row["layer"][name] for name in ("name", "op_type", "weight_bytes", "shape")}
        row["layer"] = {**kept, **stored}
    file.unlink()
    kept_json(file, lambda: rows)
    again = rank_layers(fused, subject, workspace)
    assert CALLS.made.count("score") == 1
    assert again == ranking
    for before, after in zip(ranking, again, strict=True):
        assert vars(after.layer) == vars(before.layer)


@pytest.mark.parametrize(
    ("chosen", "warning"),
    [
        ({"excluded": ["q"]}, "q (float32), k (int8), v (int8)"),
        ({"precisions": {"float16": ["v", "q"]}}, "q (float16), k (int8), v (float16)"),
        ({"excluded": ["q", "k", "v"]}, None),
        ({"excluded": ["out"]}, None),
        ({}, None),
    ],
)
def test_a_candidate_that_divides_what_runs_as_one_is_warned_of(
    fused: Parts,
    workspace: Workspace,
    chosen: dict[str, Any],
    warning: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    candidate = choose(fused, workspace, **chosen)
    assert [name for name, _ in candidate.precisions] == ["k", "out", "q", "v"]
    assert len(caplog.messages) == (warning is not None)
    if warning is not None:
        assert "cpu runs these layers as one" in caplog.text
        assert f": {warning}." in caplog.text


def test_the_top_layers_take_along_what_runs_as_one_with_them(
    fused: Parts, workspace: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    ranking = rank_layers(fused, prepare_subject(fused, workspace), workspace)
    place = [score.layer.unit for score in ranking].index("q") + 1
    assert {"q", "k", "v"} <= set(choose(fused, workspace, top=place).excluded)
    assert not caplog.messages


def choose(given: Parts, workspace: Workspace, **chosen: Any) -> Candidate:
    """Return the candidate that this config chooses."""
    context = Context(given, prepare_subject(given, workspace), MemoryTracker(), workspace)
    default = OmegaConf.load(CONF / "config.yaml").candidate
    return chosen_candidate(OmegaConf.create({"candidate": {**default, **chosen}}), context)

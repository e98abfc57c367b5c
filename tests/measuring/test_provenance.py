"""Jobs measure what their study measures, or refuse; latency is of one kind of machine."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tiny_studies import Lab, ProbedDevice, chain

from seqto.datasets.digits import DigitsDataset
from seqto.errors import StudyError
from seqto.measuring.pool import Pool
from seqto.measuring.provenance import (
    MACHINE,
    PROVENANCE,
    check_provenance,
    check_timed_alike,
    machine_of,
    provenance_of,
)
from seqto.measuring.record import Assignment
from seqto.pareto.limits import Constraint, Gate
from seqto.quantizers.static import StaticQuantizer
from seqto.study.settings import StudySettings
from seqto.tracking.memory import MemoryTracker
from seqto.types import Candidate


@dataclass
class OtherCpu(ProbedDevice):
    """The same device on another machine."""

    facts: dict[str, str] = field(default_factory=dict, compare=False)

    def describe(self) -> dict[str, str]:
        return {**super().describe(), **self.facts}


def on(**facts: str) -> OtherCpu:
    return OtherCpu(facts=facts)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return Lab.at(tmp_path_factory.mktemp("lab"))


def test_same_files_and_versions_pass_on_any_cpu(lab: Lab, tmp_path: Path) -> None:
    recorded = provenance_of(lab.parts, lab.subject)
    other = Lab.at(tmp_path, device=on(cpu="another CPU"))
    check_provenance(recorded, provenance_of(other.parts, other.subject))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"model": chain(3)}, "the model's sha256 is"),
        ({"dataset": DigitsDataset(evaluation_size=199)}, "the data's fingerprint is"),
        ({"quantizer": StaticQuantizer(per_channel=False)}, "how it is quantized is"),
        ({"device": on(kernels="saturating")}, "the kernels is saturating here"),
        ({"device": on(runtime="onnxruntime 0")}, "the runtime is onnxruntime 0 here"),
    ],
    ids=lambda each: next(iter(each)) if isinstance(each, dict) else None,
)
def test_anything_else_is_refused(
    lab: Lab, tmp_path: Path, changed: dict[str, object], words: str
) -> None:
    recorded = provenance_of(lab.parts, lab.subject)
    other = Lab.at(tmp_path, **changed)
    with pytest.raises(StudyError, match=f"something else than the study: .*{words}"):
        check_provenance(recorded, provenance_of(other.parts, other.subject))


def test_other_versions_are_refused(lab: Lab) -> None:
    own = provenance_of(lab.parts, lab.subject)
    for name in ("seqto", "onnx", "onnxruntime"):
        with pytest.raises(StudyError, match=f"{name} is {own[name]} here and 0.0 in the study"):
            check_provenance({**own, name: "0.0"}, own)


@pytest.mark.parametrize("kind", ["the same", "another CPU"])
def test_only_latencies_of_the_studys_machines_are_recorded(lab: Lab, kind: str) -> None:
    tracker, here = MemoryTracker(), machine_of(lab.device)
    study = tracker.open_study(lab.study(tracker).plan("", None), True)
    pool = Pool(lab.parts, lab.subject, tracker)
    candidate = Candidate.excluding(lab.subject.layer_names, [])
    timed_on = here if kind == "the same" else kind
    tracker.log_document(study, PROVENANCE, {MACHINE: timed_on})
    (run,) = pool.launch(study, [Assignment(0, candidate)])
    trial = tracker.trial(run)
    assert trial.machine == here
    assert ("latency_ms" in trial.metrics) == (kind == "the same")
    assert "accuracy_loss" in trial.metrics and "size_bytes" in trial.metrics


def test_where_latency_counts_machines_of_another_kind_are_refused(lab: Lab) -> None:
    recorded = provenance_of(lab.parts, lab.subject)
    check_timed_alike(recorded, lab.device, counts=True)
    check_timed_alike(recorded, on(cpu="another CPU"), counts=False)
    with pytest.raises(StudyError, match="latency counts .* this machine is cpu another CPU"):
        check_timed_alike(recorded, on(cpu="another CPU"), counts=True)


def test_latency_counts_as_objective_and_by_limits() -> None:
    assert not StudySettings().times
    assert StudySettings(objectives=["accuracy_loss", "latency_ms"]).times
    assert StudySettings(constraint=Constraint(max_latency_ms=3)).times
    assert StudySettings(gate=Gate(max_latency_ms=3)).times


def test_study_resumed_elsewhere_keeps_its_machine_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tracker, device = MemoryTracker(), on(cpu="one CPU")
    lab = Lab.at(tmp_path, device=device)
    record = lab.run(tracker).record
    document = tracker.read_document(record.id, PROVENANCE)
    assert document == provenance_of(lab.parts, lab.subject)
    assert record.tags["seqto.machine"] == machine_of(lab.device)
    assert {each.machine for each in record.trials} == {machine_of(lab.device)}
    device.facts = {"cpu": "another CPU"}
    again = lab.run(tracker)
    assert again.record.id == record.id and again.measured == 0
    assert "what is measured here, on cpu another CPU" in caplog.text
    assert tracker.read_document(record.id, PROVENANCE) == document

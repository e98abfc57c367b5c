"""What machines are sent gives the same measurements, and is refused if it is not what was sent."""

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tiny_studies import Lab

from seqto.devices.onnxruntime import OnnxRuntimeDevice
from seqto.errors import StudyError
from seqto.measuring import kit as room
from seqto.measuring.batch import attempts
from seqto.measuring.kit import Kit, measure_ordered
from seqto.types import Candidate


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    device = OnnxRuntimeDevice(warmup=0, repeats=1)
    return Lab.at(tmp_path_factory.mktemp("lab"), device=device)


@pytest.fixture
def kit(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Kit:
    """Return it as another machine receives it."""
    monkeypatch.setattr(room, "_held", {})
    return pickle.loads(pickle.dumps(Kit.of(lab.parts, lab.subject)))


def test_what_is_sent_measures_the_same(lab: Lab, kit: Kit) -> None:
    names = lab.subject.layer_names
    candidates = [Candidate.excluding(names, names[:at]) for at in range(3)]
    orders = [kit.order(each) for each in candidates]
    assert [kit.candidate(each) for each in orders] == candidates
    here = list(attempts(lab.parts, lab.subject, candidates))
    there = measure_ordered(kit, orders)
    for one, other in zip(here, there, strict=True):
        assert one.measurement is not None and other.measurement is not None
        assert one.measurement.model_sha256 == other.measurement.model_sha256
        assert one.measurement.losses == other.measurement.losses
        assert other.measurement.machine


def test_candidate_is_a_byte_a_layer(lab: Lab, kit: Kit) -> None:
    order = kit.order(Candidate.excluding(lab.subject.layer_names, []))
    assert len(order.numbers) == len(lab.subject.layers)
    assert len(pickle.dumps(order)) < 200


def test_nothing_of_the_driver_is_sent(lab: Lab, kit: Kit, tmp_path: Path) -> None:
    """No path of its files, and none of the samples that only calibrate."""
    assert len(kit.subject.calibration) == 0 < len(lab.subject.calibration)
    assert str(lab.workspace.root.parent).encode() not in pickle.dumps(kit)


@pytest.mark.parametrize("what", ["model", "samples", "reference", "ranges"])
def test_content_that_changed_on_its_way_is_refused(kit: Kit, what: str) -> None:
    subject, model = kit.subject, kit.model
    if what == "model":
        model = replace(model, graph=np.append(model.graph, np.uint8(0)))
    elif what == "samples":
        inputs = {name: array + 1 for name, array in subject.samples.inputs.items()}
        subject = replace(subject, samples=replace(subject.samples, inputs=inputs))
    elif what == "reference":
        outputs = {name: np.asarray(rows)[::-1] for name, rows in subject.reference.items()}
        subject = replace(subject, reference=outputs)
    else:
        subject = replace(subject, ranges={**subject.ranges, "more": (0.0, 1.0)})
    changed = replace(kit, model=model, subject=subject)
    with pytest.raises(StudyError, match="arrived changed"):
        measure_ordered(changed, [])


def test_machine_with_other_versions_refuses(kit: Kit) -> None:
    other = replace(kit, surroundings={**kit.surroundings, "onnxruntime": "0.1"})
    with pytest.raises(StudyError, match=r"onnxruntime is .* here and 0\.1 in the study"):
        measure_ordered(other, [])


def test_other_kind_of_machine_refuses_where_latency_counts(kit: Kit) -> None:
    with pytest.raises(StudyError, match="latency counts in this study and is that of another"):
        measure_ordered(kit, [], timed_on="another")

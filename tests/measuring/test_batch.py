"""Candidates measured in a row."""

from dataclasses import replace
from pathlib import Path

import pytest
from tiny_studies import Lab

from seqto.devices.onnxruntime import OnnxRuntimeDevice, OnnxRuntimeProgram
from seqto.measuring import batch as module
from seqto.measuring.batch import attempts
from seqto.types import Candidate, Model


class CountingDevice(OnnxRuntimeDevice):
    """A CPU that notes the layers of the models that it loads, and may refuse one."""

    def __init__(self) -> None:
        super().__init__(warmup=0, repeats=1)
        self.loaded: list[int] = []

    def load(self, model: Model) -> OnnxRuntimeProgram:
        """Return the model ready to run."""
        layers = [node for node in model.proto.graph.node if node.op_type in ("Conv", "Gemm")]
        self.loaded.append(len(layers))
        return super().load(model)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return Lab.at(tmp_path_factory.mktemp("lab"))


def ladder(lab: Lab) -> list[Candidate]:
    """Return candidates that exclude more and more layers, from the end of the model on."""
    names = lab.subject.layer_names
    return [Candidate.excluding(names, names[at:]) for at in range(len(names), -1, -1)]


def figures(lab: Lab, device: OnnxRuntimeDevice) -> list[dict[str, float]]:
    """Return what does not depend on the moment."""
    parts = replace(lab.parts, device=device)
    found = list(attempts(parts, lab.subject, ladder(lab)))
    assert not any(each.failure or each.undone for each in found)
    return [
        {k: v for k, v in each.measurement.metrics.items() if not k.startswith(("latency", "load"))}
        for each in found
        if each.measurement
    ]


def test_what_is_shared_changes_no_figure(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    shared, plain = CountingDevice(), CountingDevice()
    together = figures(lab, shared)
    monkeypatch.setattr(module, "SHARED_BYTES", 0)
    assert together == figures(lab, plain)
    assert len({str(each) for each in together}) > 2, "or these candidates are no test"
    assert min(shared.loaded) < min(plain.loaded) == max(plain.loaded)


def test_the_float_model_is_not_run_again(lab: Lab) -> None:
    names = lab.subject.layer_names
    doubled = {name: 2 * each for name, each in lab.subject.reference.items()}
    # Not its outputs, but these: they show whence the loss of nothing comes.
    subject = replace(lab.subject, reference=doubled)
    (found,) = attempts(lab.parts, subject, [Candidate.excluding(names, names)])
    assert found.measurement is not None
    assert found.measurement.metrics["divergence"] == 0


def test_a_candidate_that_cannot_be_built_fails_alone(lab: Lab, tmp_path: Path) -> None:
    good, *_ = ladder(lab)
    bad = Candidate.of(dict.fromkeys(lab.subject.layer_names, "int3"))
    found = list(attempts(lab.parts, lab.subject, [bad, good, bad]))
    assert [each.measurement is None for each in found] == [True, False, True]
    assert found[0].failure.startswith("ConfigError: quantization=static has no precision 'int3'")

"""Candidates measured in a row."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_studies import Lab

from seqto.devices.onnxruntime import OnnxRuntimeDevice, OnnxRuntimeProgram
from seqto.measuring import batch as module
from seqto.measuring.batch import attempts
from seqto.quantizers.static import StaticQuantizer
from seqto.types import Candidate, Model, Ranges


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


def coded(lab: Lab) -> list[Candidate]:
    """Return candidates with coded weights that differ in their last layers only."""
    first, *rest = lab.subject.layer_names
    return [
        Candidate.of({first: "coded_0.5", **dict.fromkeys(rest, each)})
        for each in ("coded_1", "coded_0.5", "coded_0.25")
    ]


def figures(
    lab: Lab, device: OnnxRuntimeDevice, candidates: Sequence[Candidate]
) -> list[dict[str, float]]:
    """Return what does not depend on the moment."""
    parts = replace(lab.parts, device=device)
    found = list(attempts(parts, lab.subject, candidates))
    assert not any(each.failure or each.undone for each in found)
    return [
        {k: v for k, v in each.measurement.metrics.items() if not k.startswith(("latency", "load"))}
        for each in found
        if each.measurement
    ]


@pytest.mark.parametrize("made", [ladder, coded])
def test_what_is_shared_changes_no_figure(
    lab: Lab, made: Callable[[Lab], list[Candidate]], monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, plain = CountingDevice(), CountingDevice()
    together = figures(lab, shared, made(lab))
    monkeypatch.setattr(module, "SHARED_BYTES", 0)
    assert together == figures(lab, plain, made(lab))
    assert len({str(each) for each in together}) > 2, "or these candidates are no test"
    assert min(shared.loaded) < min(plain.loaded) == max(plain.loaded)


def test_who_runs_ahead_scores_the_same_and_is_loaded_later(lab: Lab) -> None:
    plain, ahead = CountingDevice(), CountingDevice()
    parts = replace(lab.parts, device=ahead)
    found = list(attempts(parts, lab.subject, coded(lab), ahead=True))
    scored = [
        {k: v for k, v in each.measurement.metrics.items() if not k.startswith(("latency", "load"))}
        for each in found
        if each.measurement
    ]
    assert scored == figures(lab, plain, coded(lab))
    whole = len(lab.subject.layer_names)
    first = ahead.loaded.index(whole)
    assert min(ahead.loaded[:first]) < whole == min(ahead.loaded[first:]), "parts come first"
    assert min(plain.loaded[plain.loaded.index(whole) :]) < whole, "where nobody asks for it"


def test_large_outputs_are_not_held(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_HELD_BYTES", 100)
    device = CountingDevice()
    parts = replace(lab.parts, device=device)
    found = list(attempts(parts, lab.subject, coded(lab), ahead=True))
    whole = len(lab.subject.layer_names)
    assert all(each.measurement for each in found)
    assert min(device.loaded[device.loaded.index(whole) :]) < whole


class Misleading(StaticQuantizer):
    """A quantizer whose previews compute something else."""

    def preview(self, model: Model, ranges: Ranges, candidate: Candidate) -> Model:
        """Return the float model."""
        return model


def test_outputs_that_are_not_the_files_own_are_not_taken(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    misled = replace(lab, parts=replace(lab.parts, quantizer=Misleading()))
    found = figures(misled, CountingDevice(), coded(lab))
    monkeypatch.setattr(module, "SHARED_BYTES", 0)
    assert found == figures(lab, CountingDevice(), coded(lab))
    assert all(each["divergence"] > 0 for each in found)


def test_small_models_come_with_their_attempts(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    candidate = coded(lab)[0]
    (found,) = attempts(lab.parts, lab.subject, [candidate])
    assert found.model is not None and found.measurement is not None
    assert found.model.digest == found.measurement.model_sha256
    monkeypatch.setattr(module, "_SMALL", 100)
    (found,) = attempts(lab.parts, lab.subject, [candidate])
    assert found.model is None


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

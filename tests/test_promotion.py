"""Which version becomes the champion, of real models that are measured here and now."""

from dataclasses import replace

import pytest
from tiny_studies import Lab, ProbedDevice

from seqto.errors import StudyError
from seqto.pareto.limits import Constraint
from seqto.promotion import CHAMPION, Bench, Decision, Rules, Verdict, decide
from seqto.types import Candidate, Model, Trial, TrialState, Version

OBJECTIVES = ["accuracy_loss", "size_bytes"]


class Noting(ProbedDevice):
    """A CPU that notes the session options of what it loads, and has the latencies of a test."""

    def __init__(self) -> None:
        super().__init__()
        self.sessions: list[dict[str, str]] = []
        self.chosen: dict[int, float] = {}

    def latency(self, model: Model) -> float | None:
        self.sessions.append(dict(model.session))
        return self.chosen.get(model.size)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return Lab.at(tmp_path_factory.mktemp("lab"), device=Noting())


def version(
    lab: Lab, number: int, excluded: int, *aliases: str, rolled_back: bool = False, **noted: float
) -> Version:
    """Return a version that leaves so many layers in float, with what its study noted."""
    names = lab.subject.layer_names
    candidate = Candidate.excluding(names, names[:excluded])
    sha = lab.parts.quantizer.quantize(lab.subject.model, lab.subject.ranges, candidate).digest
    metrics = {"accuracy_loss": 0.0, "size_ratio": 0.5, "latency_ms": 1.0, **noted}
    trial = Trial(f"run-{number}", 0, candidate, TrialState.COMPLETE, metrics, sha)
    return Version("name", str(number), trial, aliases, rolled_back=rolled_back)


def bench_of(lab: Lab) -> Bench:
    def load(each: Version) -> Model:
        subject = lab.subject
        return lab.parts.quantizer.quantize(subject.model, subject.ranges, each.trial.candidate)

    return Bench(lab.parts, lab.workspace, load)


def decided(lab: Lab, versions: list[Version], **rules: object) -> Decision:
    return decide(versions, Rules(**{"objectives": OBJECTIVES, **rules}), bench_of(lab))


def test_the_smallest_of_those_that_meet_the_limits_is_measured_first(lab: Lab) -> None:
    # Their studies had the sizes the wrong way round: that decides only who is looked at first.
    versions = [version(lab, 1, 0, size_ratio=0.9), version(lab, 2, 6, size_ratio=0.1)]
    limits = Constraint(max_accuracy_loss=1.0)
    found = decided(lab, versions, limits=limits)
    assert found.verdict is Verdict.PROMOTED and found.challenger is versions[1]
    assert set(found.measured) == {"2"}
    assert found.measured["2"].metrics["size_ratio"] > 0.5, "measured, not noted"


def test_one_that_fails_when_measured_makes_way_for_the_next(lab: Lab) -> None:
    versions = [version(lab, 1, 0, size_ratio=0.4), version(lab, 2, 6, size_ratio=0.5)]
    found = decided(lab, versions, limits=Constraint(max_accuracy_loss=0.0))
    assert found.measured["1"].metrics["accuracy_loss"] > 0
    assert found.challenger is versions[1]
    none = decided(lab, versions[:1], limits=Constraint(max_accuracy_loss=0.0))
    assert none.verdict is Verdict.UNMET
    assert "when measured again" in none.why and "version 1: loss " in none.why


def test_worse_within_the_tolerance_is_no_obstacle(lab: Lab) -> None:
    small = version(lab, 1, 0, CHAMPION, size_ratio=0.9)
    exact = version(lab, 2, 6, "balanced")
    refused = decided(lab, [small, exact])
    assert refused.verdict is Verdict.NOT_BETTER and "worse in size (loss " in refused.why
    sizes = [refused.measured[number].metrics["size_ratio"] for number in "12"]
    more = sizes[1] - sizes[0]
    assert decided(lab, [small, exact], tolerance=more + 0.001).verdict is Verdict.PROMOTED
    assert decided(lab, [small, exact], tolerance=more - 0.001).verdict is Verdict.NOT_BETTER


def test_better_in_nothing_is_not_enough(lab: Lab) -> None:
    champion = version(lab, 1, 0, CHAMPION)
    twin = version(lab, 2, 0, "balanced")
    twin = replace(twin, trial=replace(twin.trial, model_sha256="of another build"))
    found = decided(lab, [champion, twin], tolerance=1.0)
    assert found.verdict is Verdict.NOT_BETTER and "better in nothing" in found.why


def test_the_same_model_is_champion_already(lab: Lab) -> None:
    champion, twin = version(lab, 1, 0, CHAMPION), version(lab, 2, 0, "balanced")
    assert decided(lab, [champion, twin]).verdict is Verdict.ALREADY


def test_latency_decides_where_it_is_an_objective(lab: Lab) -> None:
    assert isinstance(lab.device, Noting)
    champion, other = version(lab, 1, 0, CHAMPION), version(lab, 2, 6, "balanced")
    bench = bench_of(lab)
    sizes = [int(bench.measure(each).metrics["size_bytes"]) for each in (champion, other)]
    objectives = ["latency_ms", "accuracy_loss"]
    lab.device.chosen = {sizes[0]: 2.0, sizes[1]: 1.0}
    assert decided(lab, [champion, other], objectives=objectives).verdict is Verdict.PROMOTED
    lab.device.chosen = {sizes[0]: 1.0, sizes[1]: 2.0}
    assert decided(lab, [champion, other], objectives=objectives).verdict is Verdict.NOT_BETTER
    lab.device.chosen = {}


def test_an_objective_that_the_device_does_not_measure_is_told(lab: Lab) -> None:
    champion, other = version(lab, 1, 0, CHAMPION), version(lab, 2, 6, "balanced")
    with pytest.raises(StudyError, match="No candidate has .* 'load_ms'.* Measured .* latency_ms"):
        decided(lab, [champion, other], objectives=["load_ms", "accuracy_loss"])


def test_versions_run_with_the_options_that_they_are_registered_with(lab: Lab) -> None:
    assert isinstance(lab.device, Noting)
    needed = {"session.disable_quant_qdq": "1"}
    plain = version(lab, 1, 0, "balanced")
    special = replace(plain, trial=replace(plain.trial, session=needed))
    lab.device.sessions.clear()
    decided(lab, [special])
    assert needed in lab.device.sessions


def test_what_was_rolled_back_is_left_alone(lab: Lab) -> None:
    gone = version(lab, 2, 6, "balanced", rolled_back=True)
    found = decided(lab, [gone])
    assert found.verdict is Verdict.UNMET and "(1 rolled back)" in found.why
    kept = version(lab, 1, 0)
    found = decided(lab, [gone, kept])
    assert found.verdict is Verdict.UNMET and "state a limit" in found.why
    limits = Constraint(max_accuracy_loss=1.0)
    assert decided(lab, [gone, kept], limits=limits).challenger is kept


def test_without_any_version_of_a_study_there_is_nothing_to_promote(lab: Lab) -> None:
    foreign = Version("name", "1", Trial("", 0, Candidate(()), TrialState.COMPLETE), (CHAMPION,))
    found = decided(lab, [foreign], limits=Constraint(max_accuracy_loss=1.0))
    assert found.verdict is Verdict.UNMET and "run a study first" in found.why

"""Whole studies that compare schemes first, and then search from the best."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
from onnx import TensorProto
from quantizable_models import weights_in
from tiny_studies import Lab, ProbedDevice

from seqto.errors import StudyError
from seqto.measuring.subject import rank_layers
from seqto.protocols import Search
from seqto.quantizers.auto import AutoQuantizer
from seqto.quantizers.static import StaticQuantizer
from seqto.search.budget import BudgetSearch
from seqto.search.ladder import LadderSearch
from seqto.search.nsga2 import Nsga2Search
from seqto.sensitivity.divergence import DivergenceSensitivity
from seqto.study import explore
from seqto.study.run import Outcome
from seqto.tracking.memory import MemoryTracker
from seqto.types import INT8, SCHEMES, SCREENING, Candidate, Model, sha256
from seqto.workspace import Workspace

FIRST, SECOND = "7 bits per tensor, safe", "uint8 per channel, safe"
"""The bases: the one that does the least harm to the chain, and the fast one."""

SEARCHES: dict[str, Callable[[], Search]] = {
    "ladder": lambda: LadderSearch(step=3),
    "budget": lambda: BudgetSearch(budgets=6, evaluations=5, screens=6),
    "nsga2": lambda: Nsga2Search(population=4, generations=2, evaluations=5, screens=6),
}


class TimedDevice(ProbedDevice):
    """Runs models with uint8 weights in half the time, so that the bases are always the same."""

    def latency(self, model: Model) -> float | None:
        """Return what the model takes, in milliseconds."""
        return 1.0 if weights_in(model, TensorProto.UINT8) else 2.0


def auto_lab(folder: Path, name: str, **options: Any) -> Lab:
    # The first of them is none of the bases.
    ways = ["int8 per channel", "7 bits per tensor", "uint8 per channel"]
    quantizer = AutoQuantizer(**{"samples": 6, "only": ways, "kernels": ["safe"], **options})
    return Lab.at(
        folder,
        device=TimedDevice(),
        quantizer=quantizer,
        sensitivity=DivergenceSensitivity(samples=4, per_byte=False),
        search=SEARCHES[name](),
    )


@pytest.fixture(scope="module")
def labs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Lab]:
    return {name: auto_lab(tmp_path_factory.mktemp(name), name) for name in SEARCHES}


@pytest.fixture(params=SEARCHES)
def lab(labs: dict[str, Lab], request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Return the lab of each search, its device undisturbed."""
    found = labs[request.param]
    found.device.__init__()  # type: ignore[misc]
    yield found


@pytest.fixture
def tracker() -> MemoryTracker:
    return MemoryTracker()


def candidates(outcome: Outcome) -> list[Candidate]:
    return [trial.candidate for trial in outcome.record.trials]


def bases(outcome: Outcome) -> list[object]:
    return [row["scheme"] for row in outcome.record.tables[SCHEMES] if row["base"]]


def never(*args: object) -> NoReturn:
    raise AssertionError("schemes are compared again")


def test_candidates_are_made_from_the_bases_only(lab: Lab, tracker: MemoryTracker) -> None:
    outcome = lab.run(tracker)
    table = outcome.record.tables[SCHEMES]
    assert [row["scheme"] for row in table if row["base"]] == [FIRST, SECOND]
    assert len(table) == 3, "the others are in the record all the same"
    found = candidates(outcome)
    # Which of them a screen lets through is up to the front; a ladder is climbed from each.
    assert {each.scheme for each in found} <= {FIRST, SECOND}
    assert all(trial.state.is_settled for trial in outcome.record.trials)
    layers = lab.subject.layer_names
    complete = {each.candidate for each in outcome.record.trials if each.losses}
    # What everybody would try is measured in full, whatever is smaller.
    assert complete >= {Candidate.of(dict.fromkeys(layers, INT8), each) for each in (FIRST, SECOND)}
    assert len({each.key for each in found}) == len(found) > 3


def test_each_base_has_a_ladder_of_its_own_ranking(
    labs: dict[str, Lab], tracker: MemoryTracker
) -> None:
    lab = labs["ladder"]
    outcome = lab.run(tracker)
    quantizer = lab.parts.quantizer
    assert isinstance(quantizer, AutoQuantizer)
    ranked = {}
    for place, base in enumerate((FIRST, SECOND)):
        scheme = quantizer.schemes[base]
        scores = lab.parts.sensitivity.score(
            *(lab.subject.model, lab.subject.layers, scheme),
            *(lab.subject.ranges, lab.subject.calibration),
            *(lab.subject.observed, lab.subject.task),
        )
        ranked[base] = [each.layer.name for each in scores]
        ladder = candidates(outcome)[3 * place : 3 * place + 3]
        assert [each.scheme for each in ladder] == [base] * 3
        assert [set(each.excluded) for each in ladder] == [
            *(set(), set(ranked[base][:3]), set(ranked[base])),
        ]
    assert set(ranked[FIRST][:3]) != set(ranked[SECOND][:3]), "or this is no test"
    # What is shown is the ranking from the first.
    assert [each.layer.name for each in outcome.record.scores] == ranked[FIRST]


def test_ranking_of_a_base_is_that_of_its_static_quantizer(
    labs: dict[str, Lab], tracker: MemoryTracker, tmp_path: Path
) -> None:
    lab = labs["budget"]
    found = lab.run(tracker).record.scores
    static = replace(
        lab.parts,
        quantizer=StaticQuantizer(
            per_channel=False, reduce_range=True, session={"session.x64quantprecision": "1"}
        ),
    )
    assert found == rank_layers(static, lab.subject, Workspace(tmp_path))
    other = replace(lab.parts, quantizer=lab.parts.quantizer.schemes[SECOND])  # type: ignore[attr-defined]
    scores = rank_layers(other, lab.subject, Workspace(tmp_path / "other"))
    assert [each.score for each in scores] != [each.score for each in found]


def test_screening_is_logged_of_searches_that_screen(lab: Lab, tracker: MemoryTracker) -> None:
    outcome = lab.run(tracker)
    if not lab.parts.search.screens:
        assert SCREENING not in outcome.record.tables
        return
    table = outcome.record.tables[SCREENING]
    assert {row["scheme"] for row in table} == {FIRST, SECOND}
    evaluated = {row["key"] for row in table if row["evaluated"]}
    assert evaluated <= {each.key for each in candidates(outcome)}
    assert len(candidates(outcome)) <= 5 and 3 <= len(evaluated) < len(table)


def test_static_quantization_has_no_schemes_but_a_screening(
    labs: dict[str, Lab], tracker: MemoryTracker
) -> None:
    lab = labs["budget"].with_parts(quantizer=StaticQuantizer())
    workspace = Workspace(lab.workspace.root / "static")
    outcome = replace(lab, workspace=workspace).run(tracker)
    assert set(outcome.record.tables) == {SCREENING}
    assert {each.scheme for each in candidates(outcome)} == {""}


def test_resumed_study_keeps_its_bases(
    lab: Lab, tracker: MemoryTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = candidates(lab.run(MemoryTracker()))

    def interrupt(index: int) -> None:
        if index == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lab.run(tracker, before=interrupt)
    # Even if now another scheme were the fastest.
    monkeypatch.setattr(explore, "compare_schemes", never)
    log: list[int] = []
    outcome = lab.run(tracker, log)
    assert log == list(range(2, len(whole)))
    assert candidates(outcome) == whole
    assert bases(outcome) == [FIRST, SECOND]
    again: list[int] = []
    assert candidates(lab.run(tracker, again)) == whole
    assert again == []


def test_study_killed_before_its_schemes_were_logged_compares_them(
    labs: dict[str, Lab], tracker: MemoryTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = labs["ladder"]

    def killed(*args: object) -> NoReturn:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(explore, "compare_schemes", killed)
        lab.run(tracker)
    assert bases(lab.run(tracker)) == [FIRST, SECOND]
    assert len(tracker.studies) == 1


def test_study_that_starts_afresh_compares_again(
    labs: dict[str, Lab], tracker: MemoryTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = labs["ladder"]
    lab.run(tracker)
    monkeypatch.setattr(explore, "compare_schemes", never)
    with pytest.raises(AssertionError, match="again"):
        lab.run(tracker, resume=False)


def test_recommended_models_are_rebuilt_as_they_were_measured(
    lab: Lab, tracker: MemoryTracker
) -> None:
    outcome = lab.run(tracker)
    aliases = tracker.registered["seqto-chain-cpu-auto"]
    assert set(aliases) == {"balanced", "accurate", "small"}
    subject = lab.subject
    # By a quantizer that knows nothing of the study.
    fresh = AutoQuantizer()
    assert set(tracker.models) == {trial.id for trial in outcome.front.members}
    for trial in outcome.front.members:
        model = fresh.quantize(subject.model, subject.ranges, trial.candidate)
        assert model.digest == trial.model_sha256
        assert sha256(tracker.models[trial.id]) == sha256(model.to_bytes())
        assert trial.metrics["size_bytes"] == len(model.to_bytes())


def test_model_that_comes_out_otherwise_is_not_registered(
    labs: dict[str, Lab], tracker: MemoryTracker
) -> None:
    lab = labs["ladder"]

    def fail(*args: object) -> NoReturn:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lab.run(tracker, publish=fail)
    # The same file with other kernels is another model.
    quantizer = lab.parts.quantizer
    assert isinstance(quantizer, AutoQuantizer)
    for scheme in quantizer.schemes.values():
        scheme.session["session.x64quantprecision"] = "0"
    try:
        with pytest.raises(StudyError, match="cannot be rebuilt as it was measured"):
            lab.run(tracker)
    finally:
        for scheme in quantizer.schemes.values():
            scheme.session["session.x64quantprecision"] = "1"
    assert not tracker.models


def test_facts_of_a_stored_model_have_its_own_session(
    tmp_path: Path, tracker: MemoryTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = auto_lab(tmp_path, "ladder", only=["7 bits per tensor"], kernels=["fast"])
    logged: list[dict[str, str]] = []
    monkeypatch.setattr(tracker, "log_model", lambda *args: logged.append(dict(args[-1])))
    measured: list[dict[str, str]] = []
    finish = tracker.finish_trial

    def spied(trial: str, measurement: Any, duplicate_of: int | None) -> None:
        measured.append(dict(measurement.session))
        finish(trial, measurement, duplicate_of)

    monkeypatch.setattr(tracker, "finish_trial", spied)
    outcome = lab.run(tracker, register_models=False)
    assert bases(outcome) == ["7 bits per tensor, fast"]
    assert len(logged) == len(outcome.front.members)
    # Whatever this CPU gets by default.
    assert {each["session.x64quantprecision"] for each in logged} == {"0"}
    assert {each["session.x64quantprecision"] for each in measured} == {"0"}
    assert all(each["runtime"].startswith("onnxruntime") for each in logged)


def test_same_file_with_the_same_kernels_is_a_duplicate(
    labs: dict[str, Lab], tracker: MemoryTracker
) -> None:
    trials = labs["ladder"].run(tracker).record.trials
    # All layers in float: there is nothing left that schemes could do otherwise.
    assert [trial.duplicate_of for trial in trials] == [None] * 5 + [2]
    assert trials[5].model_sha256 == trials[2].model_sha256
    assert trials[5].candidate != trials[2].candidate


def test_safe_and_fast_are_no_duplicates(tmp_path: Path, tracker: MemoryTracker) -> None:
    class Fast(ProbedDevice):
        """Takes fast kernels for fast, also on a CPU that has none."""

        def latency(self, model: Model) -> float | None:
            return 1.0 if model.session.get("session.x64quantprecision") == "0" else 2.0

    lab = Lab.at(
        tmp_path,
        device=Fast(),
        quantizer=AutoQuantizer(samples=6, only=["7 bits per tensor"]),
        search=LadderSearch(step=6),
    )
    outcome = lab.run(tracker)
    assert bases(outcome) == ["7 bits per tensor, safe", "7 bits per tensor, fast"]
    trials = outcome.record.trials
    assert [trial.duplicate_of for trial in trials] == [None] * 4
    assert len({trial.model_sha256 for trial in trials}) == 4
    assert trials[0].metrics["size_bytes"] == trials[2].metrics["size_bytes"]


def test_one_base_is_one_search(tmp_path: Path, tracker: MemoryTracker) -> None:
    lab = auto_lab(tmp_path, "ladder", bases=1)
    outcome = lab.run(tracker)
    assert bases(outcome) == [FIRST]
    assert [each.scheme for each in candidates(outcome)] == [FIRST] * 3


def test_progress_counts_the_candidates_of_all_bases(
    labs: dict[str, Lab], tracker: MemoryTracker
) -> None:
    seen: list[tuple[int, int]] = []
    labs["ladder"].run(tracker, watch=lambda trial, done, total: seen.append((done, total)))
    assert seen == [(done, 6) for done in range(1, 7)]

"""Which of the shortlisted candidates are still worth an evaluation."""

import pytest

from seqto.study.race import Race
from seqto.types import Candidate, Trial, TrialState

CANDIDATES = [Candidate.of({"a": "int8", "b": each}) for each in ("int4", "int8", "float16")]
SIZES = dict(zip(CANDIDATES, (100.0, 200.0, 400.0), strict=True))


def trial(index: int, loss: float, size: float, state: TrialState = TrialState.COMPLETE) -> Trial:
    metrics = {"accuracy_loss": loss, "size_bytes": size}
    return Trial("", index, CANDIDATES[index], state, metrics)


def test_what_is_larger_than_one_that_loses_nothing_is_not_evaluated() -> None:
    race = Race(CANDIDATES, SIZES)
    assert race.ask(1) == CANDIDATES[:1]
    race.tell(trial(0, 0.0, 100.0))
    assert race.ask(8) == [] and race.remaining() == 0
    assert race.dropped == tuple(CANDIDATES[1:]) and race.evaluated == CANDIDATES[:1]


@pytest.mark.parametrize(
    "told",
    [
        pytest.param(trial(0, 0.003, 100.0), id="loses something"),
        pytest.param(trial(0, 0.0, 395.0), id="about as large as the largest"),
        pytest.param(Trial("", 0, CANDIDATES[0], TrialState.FAILED), id="failed"),
    ],
)
def test_others_are_evaluated(told: Trial) -> None:
    race = Race(CANDIDATES, SIZES)
    assert race.ask(2) == CANDIDATES[:2]
    race.tell(told)
    assert race.ask(8) == CANDIDATES[2:] and not race.dropped


def test_nothing_is_dropped_without_sizes() -> None:
    race = Race(CANDIDATES)
    assert race.ask(1) == CANDIDATES[:1]
    race.tell(trial(0, 0.0, 1.0))
    assert race.ask(8) == CANDIDATES[1:]


FINE = [Candidate.of({"a": f"coded_{step}"}) for step in (1, 0.5, 0.25, 0.125)]
LISTED, SPARE = [FINE[0], FINE[3]], FINE[1:3]
ESTIMATED = dict(zip(FINE, (100.0, 140.0, 180.0, 400.0), strict=True))


def told(race: Race, candidate: Candidate, loss: float | None) -> None:
    """Tell what was measured; without a loss it was stopped."""
    metrics = {"size_bytes": ESTIMATED[candidate]}
    state = TrialState.STOPPED
    if loss is not None:
        metrics["accuracy_loss"], state = loss, TrialState.COMPLETE
    race.tell(Trial("", FINE.index(candidate), candidate, state, metrics))


def test_what_was_stopped_makes_room_in_the_middle_of_the_widest_gap() -> None:
    stopped = Candidate.of({"a": "int4"})
    race = Race([*LISTED, stopped], ESTIMATED | {stopped: 300.0}, SPARE)
    assert race.ask(8) == [*LISTED, stopped]
    told(race, LISTED[0], 0.04)
    race.tell(Trial("", 9, stopped, TrialState.STOPPED, {"size_bytes": 300.0}))
    # What still runs may be in the gap.
    assert race.ask(8) == []
    told(race, LISTED[1], 0.01)
    assert race.ask(8) == [FINE[2]]
    assert race.evaluated == [*LISTED, stopped, FINE[2]] and race.added == (FINE[2],)
    # Who takes a place and is stopped leaves none.
    told(race, FINE[2], None)
    assert race.ask(8) == [] and race.remaining() == 0


def test_what_was_dropped_makes_room() -> None:
    race = Race([FINE[0], *FINE[2:]], ESTIMATED, [FINE[1]])
    assert race.ask(2) == [FINE[0], FINE[2]]
    told(race, FINE[0], 0.04)
    told(race, FINE[2], 0.0)
    assert race.dropped == (FINE[3],) and race.ask(8) == [FINE[1]]


def test_smaller_ones_than_all_that_were_measured_are_in_no_gap() -> None:
    race = Race(FINE[1:], ESTIMATED, FINE[:1])
    assert race.ask(2) == FINE[1:3]
    told(race, FINE[1], 0.0)
    told(race, FINE[2], 0.01)
    # There is no smaller one beside which it would be in a gap.
    assert race.dropped == (FINE[3],) and race.ask(8) == []


@pytest.mark.parametrize(
    ("losses", "least"),
    [
        pytest.param((0.04, 0.01), 1e-6, id="nobody was stopped"),
        pytest.param((0.0004, 0.0001, None), 0.001, id="losses are alike"),
        pytest.param((0.9, 0.3, None), 1e-6, id="both are ruined"),
    ],
)
def test_nothing_is_added(losses: tuple[float | None, ...], least: float) -> None:
    more = Candidate.of({"a": "int4"})
    race = Race([*LISTED, more], ESTIMATED | {more: 300.0}, SPARE, least)
    race.ask(8)
    for candidate, loss in zip([*LISTED], losses[:2], strict=True):
        told(race, candidate, loss)
    state = TrialState.STOPPED if len(losses) > 2 else TrialState.FAILED
    race.tell(Trial("", 9, more, state, {"size_bytes": 300.0}))
    assert race.ask(8) == []


def test_without_a_measured_candidate_there_is_no_gap() -> None:
    race = Race(LISTED, ESTIMATED, SPARE)
    race.ask(8)
    for candidate in LISTED:
        told(race, candidate, None)
    assert race.ask(8) == []


def test_no_gap_is_filled_while_a_candidate_that_may_be_in_it_runs() -> None:
    stopped = Candidate.of({"a": "int4"})
    race = Race([*LISTED, FINE[2], stopped], ESTIMATED, [FINE[1]])
    race.ask(8)
    told(race, FINE[0], 0.04)
    told(race, FINE[3], 0.01)
    race.tell(Trial("", 9, stopped, TrialState.STOPPED, {"size_bytes": 300.0}))
    assert race.ask(8) == []
    told(race, FINE[2], 0.02)
    assert race.ask(8) == [FINE[1]]

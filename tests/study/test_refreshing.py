from collections.abc import Sequence
from pathlib import Path

import pytest
from tiny_studies import Lab

from seqto.study import refreshing
from seqto.tracking.memory import MemoryTracker
from seqto.types import Front, StudyRecord


class Shown:
    """What was shown of a running study: how many candidates were measured, and the front's."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, list[int]]] = []

    def __call__(self, record: StudyRecord, front: Front) -> Sequence[Path]:
        self.seen.append((len(record.trials), [each.index for each in front.members]))
        return []


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return Lab.at(tmp_path_factory.mktemp("lab"))


def test_those_who_watch_see_the_front_so_far(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refreshing, "_PAUSE", 0.0)
    monkeypatch.setattr(refreshing, "_SHARE", 0)
    shown, tracker = Shown(), MemoryTracker()
    outcome = lab.run(tracker, show=shown)
    counts = [count for count, _ in shown.seen]
    assert len(counts) == len(outcome.record.trials) - 1, "the end shows the last one"
    assert counts == sorted(counts) and counts[0] >= 1
    assert all(members for _, members in shown.seen)


def test_short_studies_are_not_slowed_down(lab: Lab) -> None:
    shown = Shown()
    lab.run(MemoryTracker(), show=shown)
    assert shown.seen == []


def test_a_refresh_takes_a_small_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(refreshing.time, "monotonic", lambda: now[0])
    called: list[float] = []

    class Slow(refreshing.Refreshed):
        def _refresh(self) -> None:
            called.append(now[0])
            now[0] += 2.0

    watched = Slow(None, "run", lambda *_: None, lambda *_: [])  # type: ignore[arg-type]
    for _ in range(250):
        now[0] += 1.0
        watched(None, 1, 9)  # type: ignore[arg-type]
    assert called == [5.0, 107.0, 209.0]

"""The tracker that keeps everything in memory."""

import pytest
from suite_trackers import Inspector, TrackerSuite

from seqto.tracking.memory import MemoryTracker
from seqto.types import TrialState


class MemoryInspector:
    """Looks into a MemoryTracker's dictionaries."""

    def __init__(self, tracker: MemoryTracker) -> None:
        self._tracker = tracker

    def study_state(self, study: str) -> TrialState:
        return self._tracker.studies[study].state

    def front(self, study: str) -> dict[str, tuple[int, tuple[str, ...]]]:
        front = self._tracker.studies[study].front
        assert front is not None
        return {
            trial.id: (rank, front.aliases(trial)) for rank, trial in enumerate(front.members, 1)
        }

    def files(self, study: str) -> dict[str, bytes]:
        return self._tracker.studies[study].files

    def note(self, study: str) -> str:
        return self._tracker.studies[study].note

    def models(self, trial: str) -> list[bytes]:
        return [self._tracker.models[trial]]

    def data(self, run: str) -> dict[str, tuple[str, str, int]]:
        plan = self._tracker.studies[run].plan
        return {each.context: (each.name, each.digest, each.samples) for each in plan.data}

    def aliases(self, name: str) -> dict[str, str]:
        return self._tracker.registered[name]


class TestMemoryTracker(TrackerSuite):
    """The conformance suite."""

    @pytest.fixture
    def tracker(self) -> MemoryTracker:
        return MemoryTracker()

    @pytest.fixture
    def inspector(self, tracker: MemoryTracker) -> Inspector:
        return MemoryInspector(tracker)

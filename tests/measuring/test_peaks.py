"""What takes most memory is not done by all processes at once."""

import multiprocessing
import threading

import pytest

from seqto.measuring import peaks


@pytest.mark.parametrize(("processes", "expected"), [(1, 1), (2, 1), (3, 1), (4, 2), (16, 8)])
def test_half_of_the_processes_are_at_their_peak_at_once(processes: int, expected: int) -> None:
    assert peaks.at_once(processes) == expected


def test_a_process_waits_for_a_permit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peaks._Own, "permits", peaks._Own.permits)
    permits = multiprocessing.get_context().Semaphore(1)
    peaks.share(permits)
    entered = threading.Event()

    def other() -> None:
        with peaks.peak():
            entered.set()

    with peaks.peak():
        waiting = threading.Thread(target=other)
        waiting.start()
        assert not entered.wait(0.2)
    waiting.join(10)
    assert entered.is_set()


def test_a_process_that_is_alone_waits_for_nobody() -> None:
    with peaks.peak(), peaks.peak():
        pass

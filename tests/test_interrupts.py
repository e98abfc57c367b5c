"""Signals that wait."""

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from seqto.interrupts import in_one_go, put_off


@pytest.fixture(autouse=True)
def polite_end() -> Iterator[None]:
    """Have SIGTERM raise, as the command line does, and see to it that handlers are put back."""

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end), signal.getsignal(signal.SIGINT)
    yield
    assert signal.getsignal(signal.SIGTERM) is end
    assert signal.getsignal(signal.SIGINT) is before[1]
    signal.signal(signal.SIGTERM, before[0])


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]
)
def test_signal_waits_for_the_end_of_the_block(
    number: signal.Signals, error: type[BaseException]
) -> None:
    done = False
    with pytest.raises(error), put_off():
        os.kill(os.getpid(), number)
        done = True
    assert done


def test_signal_waits_for_the_outermost_block() -> None:
    done = False
    with pytest.raises(KeyboardInterrupt), put_off():
        with put_off():
            os.kill(os.getpid(), signal.SIGINT)
        done = True
    assert done


def test_second_signal_does_not_wait() -> None:
    reached = False
    with pytest.raises(KeyboardInterrupt), put_off():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        reached = True
    assert not reached


def test_error_of_the_block_comes_before_the_signal() -> None:
    with pytest.raises(ValueError, match="broken"), put_off():
        os.kill(os.getpid(), signal.SIGINT)
        raise ValueError("broken")


def test_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with put_off():
            os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_function_ends_before_the_signal() -> None:
    log: list[str] = []

    @in_one_go
    def write(text: str) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        log.append(text)

    with pytest.raises(KeyboardInterrupt):
        write("whole")
    assert log == ["whole"]


def test_other_threads_may_write_too() -> None:
    log: list[str] = []
    thread = threading.Thread(target=in_one_go(log.append), args=["written"])
    thread.start()
    thread.join()
    assert log == ["written"]

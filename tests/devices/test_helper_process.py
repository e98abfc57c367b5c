"""Processes that work for this one: they answer, crash, hang, and are never left behind."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from seqto.devices.helper_process import (
    Worker,
    WorkerCrashError,
    WorkerTimeoutError,
    end_idle,
    lease,
    release,
)
from seqto.errors import ConfigError, DeviceError


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers import the functions of these tests."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    end_idle()


def call(worker: Worker, name: str, *arguments: object, seconds: float = 120) -> object:
    import worker_calls

    return worker.call(getattr(worker_calls, name), *arguments, seconds=seconds)


def test_calls_share_a_state_until_the_worker_is_released() -> None:
    worker = lease()
    assert [call(worker, "count") for _ in range(3)] == [1, 2, 3]
    release(worker)
    again = lease()
    assert again is worker and call(again, "count") == 1
    again.kill()


def test_what_libraries_print_does_not_get_between_the_answers() -> None:
    worker = lease()
    assert call(worker, "chatter") == "answer"
    assert call(worker, "count") == 1
    worker.kill()


def test_errors_come_back() -> None:
    worker = lease()
    with pytest.raises(ConfigError, match="a remedy"):
        call(worker, "complain")
    with pytest.raises(DeviceError, match="ZeroDivisionError: division by zero"):
        call(worker, "divide")
    assert call(worker, "count") == 1, "an error does not end the process"
    worker.kill()


def test_a_crash_says_how_it_ended_and_its_last_words() -> None:
    worker = lease()
    with pytest.raises(WorkerCrashError, match=r"ended by SIGABRT \(.*goodbye"):
        call(worker, "abort")
    assert not worker.alive()
    release(worker)
    assert lease() is not worker


def test_a_hang_is_ended_in_time() -> None:
    worker = lease()
    start = time.monotonic()
    with pytest.raises(WorkerTimeoutError, match="within 1 s"):
        call(worker, "hang", seconds=1)
    assert time.monotonic() - start < 60
    assert not worker.alive()


@pytest.mark.parametrize("doing", ["hang", "count"])
def test_a_worker_ends_with_its_parent(doing: str) -> None:
    script = f"""
import sys, threading
sys.path[:0] = {[str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]!r}
import worker_calls
from seqto.devices.helper_process import lease
worker = lease()
print(worker._process.pid, flush=True)
worker.call(worker_calls.{doing}, seconds=100)
sys.stdin.read()
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    time.sleep(0.5)
    parent.kill()
    parent.wait()
    for _ in range(600):
        if not _running(pid):
            return
        time.sleep(0.1)
    pytest.fail("the worker is still there")


def _running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    listed = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
    # Who adopts it may take its time to bury it.
    return bool(listed.stdout.strip()) and not listed.stdout.startswith("Z")


def test_environments_differ() -> None:
    one = lease({"SEQTO_TEST": "one"})
    assert call(one, "variable", "SEQTO_TEST") == "one"
    release(one)
    other = lease({"SEQTO_TEST": "two"})
    assert call(other, "variable", "SEQTO_TEST") == "two"
    other.kill()

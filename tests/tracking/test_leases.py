"""A lease in the store: one holder at a time, also of many processes; the dead are followed."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient

from seqto.errors import StudyError
from seqto.tracking.claims import Claim
from seqto.tracking.leases import PREFIX, Claims, Pace, held
from seqto.tracking.mlflow import MlflowTracker

pytestmark = pytest.mark.usefixtures("no_mlflow_around")

QUICK = Pace(beat=0.1, stale=1.0, look=0.05, grace=0.2)
HOLD = """
import os, sys, time
from mlflow.tracking import MlflowClient
from seqto.errors import StudyError
from seqto.tracking.leases import Claims, Pace, held
uri, experiment, log, begin, seconds = sys.argv[1:]
claims, many = Claims(MlflowClient(uri), experiment, "key"), Pace(beat=0.1, stale=20, look=0.05)
claims.all()
print("ready", flush=True)
while not os.path.exists(begin):
    time.sleep(0.001)
def note(word):
    with open(log, "a") as file:
        file.write(word + "\\n")
while True:
    try:
        with held(claims, many):
            note("begin")
            time.sleep(float(seconds))
            note("end")
        break
    except StudyError:
        time.sleep(0.05)
"""
"""Holds the lease for a moment, as soon as it gets it; begins when a file is there."""


@pytest.fixture
def claims(client: MlflowClient, tracker: MlflowTracker) -> Claims:
    return Claims(client, tracker._runs.store.experiment_id, "key")


@pytest.fixture
def elsewhere() -> Claim:
    """Return the claim of a process on another machine."""
    return replace(Claim(), machine="elsewhere", who="bob@board, process 7", holds=True, turn=3)


def start(
    uri: str, claims: Claims, log: Path, begin: Path, seconds: float
) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", HOLD, uri, claims.place, str(log), str(begin), str(seconds)],
        stdout=subprocess.PIPE,
        text=True,
    )


def test_one_holds_it_at_a_time(tracker: MlflowTracker, uri: str, claims: Claims) -> None:
    with tracker.alone("key"):
        other = MlflowTracker(uri=uri, experiment=tracker.experiment)
        with pytest.raises(StudyError, match="another process or thread is running this.*since"):
            other.alone("key").__enter__()
        with other.alone("another key"):
            pass
        with MlflowTracker(uri=uri, experiment="another experiment").alone("key"):
            pass
        assert len(claims.all()) == 1, "who was refused left no claim"
    assert claims.all() == {}
    with other.alone("key") as check:
        check()


def test_who_ended_without_a_word_on_this_machine_is_followed_at_once(
    uri: str, claims: Claims, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with start(uri, claims, log, tmp_path, 300) as process:
        while not log.exists():
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        # Not waited for yet: it is a zombie.
        begun = time.monotonic()
        with held(claims, replace(QUICK, stale=1000, grace=20)):
            assert time.monotonic() - begun < 10
            (claim,) = claims.all().values()
            assert claim.holds and claim.turn == 2


def test_who_is_killed_but_not_dead_yet_is_waited_for(claims: Claims) -> None:
    with subprocess.Popen(["sleep", "300"]) as dying:
        started = Path(f"/proc/{dying.pid}/stat").read_text().rpartition(")")[2].split()[19]
        claims.write(replace(Claim(), process=f"{dying.pid}:{started}", holds=True, turn=1))
        threading.Timer(0.5, dying.kill).start()
        with held(claims, replace(QUICK, grace=20)):
            (claim,) = claims.all().values()
            assert claim.turn == 2


def test_silent_holder_on_another_machine_is_followed_after_a_while(
    claims: Claims, elsewhere: Claim, caplog: pytest.LogCaptureFixture
) -> None:
    claims.write(elsewhere)
    begun = time.monotonic()
    with held(claims, QUICK) as check:
        assert time.monotonic() - begun >= QUICK.stale
        (claim,) = claims.all().values()
        assert claim.turn == elsewhere.turn + 1
        time.sleep(3 * QUICK.beat)
        check()
        (later,) = claims.all().values()
        assert later.beat > claim.beat, "it shows that it lives"
    assert "bob@board, process 7 has this study" in caplog.text


@pytest.fixture
def living(claims: Claims, elsewhere: Claim) -> Iterator[None]:
    """Let the holder on another machine live."""
    ended = threading.Event()

    def beat() -> None:
        claim = elsewhere
        while not ended.wait(0.2):
            claim = claim.later()
            claims.write(claim)

    claims.write(elsewhere)
    thread = threading.Thread(target=beat)
    thread.start()
    yield
    ended.set()
    thread.join()


@pytest.mark.usefixtures("living")
def test_living_holder_on_another_machine_is_respected(claims: Claims) -> None:
    with pytest.raises(StudyError, match="bob@board, process 7"), held(claims, QUICK):
        pass
    assert len(claims.all()) == 1


def test_holder_notices_that_it_was_taken_for_dead(claims: Claims, elsewhere: Claim) -> None:
    with held(claims, QUICK) as check:
        check()
        claims.write(elsewhere)
        with pytest.raises(StudyError, match="bob@board, process 7 took over"):
            for _ in range(100):
                time.sleep(0.05)
                check()
        assert list(claims.all()) == [elsewhere.token], "its own claim is withdrawn"
        claims.withdraw(elsewhere)


def test_holder_notices_that_its_claim_is_gone(claims: Claims) -> None:
    with held(claims, QUICK) as check:
        for claim in claims.all().values():
            claims.withdraw(claim)
        with pytest.raises(StudyError, match="another process took over"):
            for _ in range(100):
                time.sleep(0.05)
                check()


def test_interrupted_waiting_leaves_no_claim(claims: Claims, elsewhere: Claim) -> None:
    claims.write(elsewhere)
    threading.Timer(0.3, signal.raise_signal, [signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt), held(claims, replace(QUICK, stale=60)):
        pass
    assert list(claims.all()) == [elsewhere.token]


def test_text_that_is_no_claim_is_ignored(claims: Claims) -> None:
    claims.client.set_experiment_tag(claims.place, f"{PREFIX}key.x", "[1, 2]")
    assert claims.all() == {}


@pytest.mark.slow
def test_many_processes_never_hold_it_together(uri: str, claims: Claims, tmp_path: Path) -> None:
    log = tmp_path / "log"
    begin = tmp_path / "begin"
    processes = [start(uri, claims, log, begin, 0.3) for _ in range(5)]
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    begin.touch()
    for process in processes:
        assert process.wait(240) == 0
    assert log.read_text().split() == ["begin", "end"] * 5
    assert claims.all() == {}

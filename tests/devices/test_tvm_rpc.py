"""TVM behind a tracker and a server, and all that may happen on the way."""

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_models import residual
from quantizable_models import random_samples
from rpc_servers import (
    KEY,
    Proxy,
    Server,
    crash_over_there,
    end_session,
    hang,
    processes_with,
    server,
    tracker,
)
from suite_devices import DeviceSuite

from seqto.devices import tvm_run
from seqto.devices.tvm_device import TvmDevice, TvmProgram
from seqto.devices.tvm_local import LocalServers, free_port, local_servers, stop_all
from seqto.errors import DeviceRunError, DeviceTimeoutError, DeviceTransportError
from seqto.graph.prepare import prepare
from seqto.types import Model, Samples

MODEL = prepare(residual())
SAMPLES = random_samples(MODEL, count=12)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep compiled candidates of these tests together, and out of the user's cache."""
    # Workers import what they are to call.
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    monkeypatch.setenv("SEQTO_CACHE", str(tmp_path_factory.getbasetemp() / "tvm"))
    # Whatever is installed, the servers of these tests have no OpenCL driver.
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path_factory.getbasetemp() / "none"))


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with tracker() as found:
        yield found


@pytest.fixture
def board(port: int) -> Iterator[Server]:
    with server(port) as found:
        yield found


def device(port: int, **others: Any) -> TvmDevice:
    """Return a device behind this tracker, in small chunks that are soon sent again."""
    settings = {
        "name": "board",
        "key": KEY,
        "chunk_size": 2,
        "seconds": 20,
        "session_seconds": 30,
        "wait_seconds": 120,
        "pause_seconds": 0.1,
        "repeats": 5,
    }
    return TvmDevice(tracker=f"127.0.0.1:{port}", **{**settings, **others})


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: Any) -> np.ndarray:
    """Return what an undisturbed run on this machine gives."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQTO_CACHE", str(tmp_path_factory.getbasetemp() / "tvm"))
        # As code for the board is made: for any CPU of this kind.
        (outputs,) = TvmDevice(target={"kind": "llvm"}, threads=1).load(MODEL).run(SAMPLES.inputs)
    return outputs


def before_chunk(program: TvmProgram, number: int, act: Callable[[], None]) -> list[int]:
    """Have something happen before a chunk is sent; return the sizes of the chunks, once sent."""
    call, sent = program._link.call, []

    def disturbed(function: Any, *arguments: Any) -> Any:
        if function is tvm_run.run_samples:
            if len(sent) == number:
                act()
            sent.append(len(arguments[0]))
        return call(function, *arguments)

    program._link.call = disturbed  # type: ignore[method-assign]
    return sent


class TestLocalServers(DeviceSuite):
    """The conformance suite, with a tracker and a server of the device's own."""

    @pytest.fixture
    def device(self) -> TvmDevice:
        """Return a device that brings its own tracker and server."""
        return TvmDevice(name="tvm_rpc", start_local=True, threads=1, repeats=5)

    @pytest.fixture(scope="class", autouse=True)
    def _stopped(self) -> Iterator[None]:
        yield
        stop_all()

    @pytest.fixture(autouse=True)
    def _left_alone(self) -> None:
        """Let go of programs that a test before left open: the server has but one session."""
        gc.collect()

    def test_two_programs_do_not_disturb_each_other(
        self, device: TvmDevice, model: Model, samples: Samples
    ) -> None:
        """A server has one session at a time: the second waits, and says so."""
        first = device.load(model)
        wanted = first.run(samples.inputs)
        impatient = TvmDevice(name="tvm_rpc", start_local=True, threads=1, wait_seconds=0.5)
        with pytest.raises(DeviceTransportError, match="no free device with the key 'seqto'"):
            impatient.load(model)
        np.testing.assert_array_equal(first.run(samples.inputs), wanted)
        first.close()

    def test_same_inputs_give_the_same_outputs(
        self, device: TvmDevice, model: Model, samples: Samples
    ) -> None:
        """As in the suite, one program after the other."""
        program = device.load(model)
        wanted = program.run(samples.inputs)
        np.testing.assert_array_equal(program.run(samples.inputs), wanted)
        program.close()
        np.testing.assert_array_equal(device.load(model).run(samples.inputs), wanted)

    def test_what_loading_takes_over_there_is_not_known(
        self, device: TvmDevice, model: Model
    ) -> None:
        program, loading = device.load_measured(model)
        program.close()
        assert loading is None


# A board behind a tracker that seqto did not start.


def test_values_are_those_of_this_machine(
    port: int, board: Server, undisturbed: np.ndarray
) -> None:
    program = device(port).load(MODEL)
    np.testing.assert_array_equal(program.run(SAMPLES.inputs), [undisturbed])
    latency = program.time(next(SAMPLES.batches(1)))
    assert 0 < latency.p10_ms <= latency.median_ms <= latency.p90_ms < 1000
    program.close()


def test_a_server_that_is_killed_in_mid_run(
    port: int, board: Server, undisturbed: np.ndarray
) -> None:
    program = device(port).load(MODEL)

    def kill() -> None:
        board.kill()
        threading.Timer(1, board.start).start()

    sent = before_chunk(program, 3, kill)
    np.testing.assert_array_equal(program.run(SAMPLES.inputs), [undisturbed])
    assert sent == [2] * 6, "chunks that were received are not sent again"
    program.close()


def test_a_server_that_stalls_and_goes_on(
    port: int, board: Server, undisturbed: np.ndarray
) -> None:
    program = device(port).load(MODEL)
    # Only now: what is slow on a busy machine is not to be taken for stalled.
    link: Any = program._link
    link.seconds, link.session_seconds = 2, 3

    def stall() -> None:
        board.stop()
        threading.Timer(4, board.go_on).start()

    before_chunk(program, 2, stall)
    np.testing.assert_array_equal(program.run(SAMPLES.inputs), [undisturbed])
    program.close()


def test_a_server_that_stalls_for_good(port: int, board: Server) -> None:
    program = device(port).load(MODEL)
    link: Any = program._link
    link.seconds, link.session_seconds, link.wait_seconds = 1, 2, 2
    before_chunk(program, 2, board.stop)
    start = time.monotonic()
    with pytest.raises(DeviceTransportError, match="board"):
        program.run(SAMPLES.inputs)
    assert time.monotonic() - start < 120
    program.close()


def test_a_link_that_drops_every_third_session(port: int, undisturbed: np.ndarray) -> None:
    # The server tells the tracker the proxy's address; its port is the same.
    with server(port, address="127.0.0.2") as board:
        # Samples are under way by then: a server that is cut off while it loads is gone.
        size = device(port)._library(MODEL).stat().st_size
        proxy = Proxy("127.0.0.2", board.port, size + 6_500, lambda number: number % 3 == 0)
        try:
            for _ in range(2):
                for _ in range(2):
                    program = device(port, chunk_size=3).load(MODEL)
                    np.testing.assert_array_equal(program.run(SAMPLES.inputs), [undisturbed])
                    program.close()
        finally:
            proxy.close()
    assert proxy.broken and proxy.sessions > 4


def test_a_link_that_breaks_after_each_upload(port: int) -> None:
    """Not the candidate's fault, though each time it seems to be the candidate that runs."""
    with server(port, address="127.0.0.2") as board:
        board_device = device(port, attempts=2)
        size = board_device._library(MODEL).stat().st_size
        # What follows the library is lost: first its loading, then samples.
        proxy = Proxy("127.0.0.2", board.port, size + 500, lambda number: True)
        try:
            with pytest.raises(DeviceTransportError, match="lost 2 times, and also when nothing"):
                board_device.load(MODEL).run(SAMPLES.inputs)
        finally:
            proxy.close()
    assert proxy.broken >= 3


@contextlib.contextmanager
def started_when_told(board: Server, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Start the server again, as a user does who reads the line that says so."""
    over = threading.Event()
    # A server that takes its time to start is told of in the same words.
    caplog.clear()

    def start() -> None:
        while "Start it again" not in caplog.text:
            if over.wait(0.1):
                return
        board.kill()
        board.start()

    thread = threading.Thread(target=start, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_a_connection_that_is_reset(
    port: int, undisturbed: np.ndarray, caplog: pytest.LogCaptureFixture
) -> None:
    with server(port, address="127.0.0.2") as board:
        # Behind the library, while samples are sent.
        limit = device(port)._library(MODEL).stat().st_size + 4000
        proxy = Proxy("127.0.0.2", board.port, limit, lambda number: number == 1, reset=True)
        try:
            program = device(port).load(MODEL)
            with started_when_told(board, caplog):
                np.testing.assert_array_equal(program.run(SAMPLES.inputs), [undisturbed])
                program.close()
        finally:
            proxy.close()
    assert proxy.broken == 1 and proxy.sessions > 1


def test_somebody_elses_server_whose_session_is_killed(
    port: int, board: Server, undisturbed: np.ndarray, caplog: pytest.LogCaptureFixture
) -> None:
    program = device(port).load(MODEL)

    def kill() -> None:
        end_session(f"--tracker 127.0.0.1:{port}")

    before_chunk(program, 3, kill)
    with started_when_told(board, caplog):
        np.testing.assert_array_equal(program.run(SAMPLES.inputs), [undisturbed])
    program.close()
    assert "board" in caplog.text and f"--tracker 127.0.0.1:{port} --key board" in caplog.text


def test_a_tracker_that_is_down() -> None:
    nobody = free_port()
    start = time.monotonic()
    with pytest.raises(DeviceTransportError, match=f"no tracker answers at 127.0.0.1:{nobody}"):
        device(nobody, wait_seconds=1).load(MODEL)
    assert time.monotonic() - start < 120


def test_a_tracker_without_the_device(port: int) -> None:
    with pytest.raises(DeviceTransportError, match="no device with the key 'phone'"):
        device(port, key="phone", wait_seconds=1).load(MODEL)


def test_a_tracker_without_a_free_device(port: int, board: Server) -> None:
    busy = device(port).load(MODEL)
    start = time.monotonic()
    with pytest.raises(DeviceTransportError, match="no free device.*device.wait_seconds"):
        device(port, wait_seconds=1).load(MODEL)
    assert 1 <= time.monotonic() - start < 120
    busy.close()


def test_a_device_that_is_late_is_waited_for(port: int, undisturbed: np.ndarray) -> None:
    found: list[Server] = []
    threading.Timer(2, lambda: found.append(Server(port))).start()
    try:
        program = device(port).load(MODEL)
        np.testing.assert_array_equal(program.run(SAMPLES.inputs), [undisturbed])
        program.close()
    finally:
        for each in found:
            each.kill()


def test_an_error_over_there_is_one_of_the_candidate(port: int, board: Server) -> None:
    program = device(port).load(MODEL)
    narrow = {name: array[..., :-1] for name, array in SAMPLES.inputs.items()}
    with pytest.raises(DeviceRunError, match="board cannot run it"):
        program.run(narrow)
    # It was not the link: the session is still there.
    assert len(program.run(SAMPLES.inputs)[0]) == 12
    program.close()


def test_a_missing_driver_over_there_is_named(port: int, board: Server) -> None:
    phone = device(port, target={"kind": "opencl"}, name="phone")
    with pytest.raises(DeviceTransportError, match="needs TVM's runtime and a driver for opencl"):
        phone.load(MODEL)
    assert "driver for opencl" in phone.needs()["driver"]
    assert not any(device(port).needs().values())


# Its own tracker and server.


@pytest.fixture
def own() -> Iterator[TvmDevice]:
    yield TvmDevice(
        name="own",
        key="own",
        target={"kind": "llvm"},
        start_local=True,
        threads=1,
        chunk_size=2,
        seconds=30,
        pause_seconds=0.1,
        repeats=3,
    )
    stop_all()


def server_processes(servers: LocalServers) -> list[int]:
    return processes_with(f"--tracker 127.0.0.1:{servers.port}")


def test_own_servers_are_started_again_when_they_die(
    own: TvmDevice, undisturbed: np.ndarray
) -> None:
    program = own.load(MODEL)
    servers = local_servers("own", 1)
    before = server_processes(servers)
    assert before

    def kill() -> None:
        for pid in before:
            os.kill(pid, signal.SIGKILL)

    before_chunk(program, 3, kill)
    np.testing.assert_array_equal(program.run(SAMPLES.inputs), [undisturbed])
    program.close()
    assert not set(before) & set(server_processes(servers))


def test_own_servers_are_started_again_when_a_session_dies(
    own: TvmDevice, undisturbed: np.ndarray
) -> None:
    """The server's process lives on, but no longer listens: only the tracker knows."""
    program = own.load(MODEL)
    servers = local_servers("own", 1)
    before = server_processes(servers)
    kill = f"--tracker 127.0.0.1:{servers.port}"
    before_chunk(program, 3, lambda: end_session(kill))
    np.testing.assert_array_equal(program.run(SAMPLES.inputs), [undisturbed])
    program.close()
    assert not set(before) & set(server_processes(servers))


def test_a_candidate_that_always_takes_the_session_with_it(own: TvmDevice) -> None:
    program = TvmDevice(**{**vars(own), "attempts": 2}).load(MODEL)
    server = f"--tracker 127.0.0.1:{local_servers('own', 1).port}"
    with pytest.raises(DeviceRunError, match="lost 2 times, each time when it ran"):
        program._link.call(crash_over_there, server)
    assert len(program.run(SAMPLES.inputs)[0]) == 12
    program.close()


def test_a_candidate_that_never_ends(own: TvmDevice) -> None:
    program = TvmDevice(**{**vars(own), "attempts": 2, "pause_seconds": 0}).load(MODEL)
    link: Any = program._link
    link.seconds = 0.5
    with pytest.raises(DeviceTimeoutError, match="2 times.*device.seconds"):
        link.call(hang)
    program.close()


SCRIPT = """
import os, sys
sys.path[:0] = {paths!r}
os.environ["SEQTO_CACHE"] = {cache!r}
from onnx_models import residual
from quantizable_models import random_samples
from seqto.devices.tvm_device import TvmDevice
from seqto.devices.tvm_local import local_servers
from seqto.graph.prepare import prepare

model = prepare(residual())
program = TvmDevice(target=dict(kind="llvm"), start_local=True, threads=1, key="once").load(model)
program.run(random_samples(model, count=2).inputs)
print(local_servers("once", 1).port, flush=True)
if sys.argv[1] == "wait":
    sys.stdin.read()
"""


@pytest.mark.parametrize("end", ["by itself", "by a signal"])
def test_no_process_is_left(end: str) -> None:
    paths = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]
    script = SCRIPT.format(paths=paths, cache=os.environ["SEQTO_CACHE"])
    mode = "wait" if end == "by a signal" else "end"
    process = subprocess.Popen(
        [sys.executable, "-c", script, mode], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    used = int(process.stdout.readline())
    if end == "by a signal":
        assert processes_with(str(used)), "or this test sees nothing"
        process.kill()
    process.wait(120)
    for _ in range(600):
        if not processes_with(str(used)):
            return
        time.sleep(0.1)
    pytest.fail(f"left: {processes_with(str(used))}")

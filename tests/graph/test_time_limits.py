"""Inference that is ended by a signal."""

import os
import signal
import threading
import time
from collections.abc import Iterator

import numpy as np
import onnx
import onnxruntime
import pytest

from seqto.graph.sessions import single_session
from seqto.graph.time_limits import run_limited
from seqto.types import Model

LOOP = """<ir_version: 8, opset_import: ["": 17]>
turns (float[4] x, int64 n) => (float[4] y) <bool yes = {1}> {
    y = Loop <body = once (int64 i, bool go, float[4] a) => (bool on, float[4] b) {
        on = Identity(go)
        b = Sin(a)
    }> (n, yes, x)
}"""
ENDLESS = 2**60


@pytest.fixture(scope="module")
def session() -> onnxruntime.InferenceSession:
    return single_session(Model("turns", onnx.parser.parse_model(LOOP)))


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    assert signal.set_wakeup_fd(-1) == -1, "nobody listens any more"


def inputs(trips: int) -> dict[str, np.ndarray]:
    return {"x": np.ones(4, np.float32), "n": np.array(trips)}


def soon(number: int, seconds: float = 0.3) -> None:
    threading.Timer(seconds, os.kill, [os.getpid(), number]).start()


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]
)
def test_signal_ends_an_endless_call(
    session: onnxruntime.InferenceSession, number: int, error: type[BaseException]
) -> None:
    signal.signal(signal.SIGTERM, lambda *_: exit(143))
    begin = time.monotonic()
    soon(number)
    with pytest.raises(error):
        run_limited(session, None, inputs(ENDLESS), 20)
    assert time.monotonic() - begin < 10


def test_signal_whose_handler_goes_on_costs_only_time(
    session: onnxruntime.InferenceSession,
) -> None:
    came: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    trips = 1
    while _seconds(session, trips) < 0.3:
        trips *= 2
    wanted = session.run(None, inputs(trips))
    soon(signal.SIGINT, 0.05)
    found = run_limited(session, None, inputs(trips), 60)
    assert came == [signal.SIGINT]
    np.testing.assert_array_equal(found, wanted)


def _seconds(session: onnxruntime.InferenceSession, trips: int) -> float:
    begin = time.monotonic()
    session.run(None, inputs(trips))
    return time.monotonic() - begin


def test_who_listens_already_is_told_of_signals(session: onnxruntime.InferenceSession) -> None:
    """An event loop, as in notebooks."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write)
    try:
        signal.signal(signal.SIGINT, lambda *_: None)
        run_limited(session, None, inputs(3), 60)
        os.kill(os.getpid(), signal.SIGINT)
        assert os.read(read, 1) == bytes([signal.SIGINT])
    finally:
        signal.set_wakeup_fd(-1)

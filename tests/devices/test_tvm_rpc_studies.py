"""Whole studies behind a tracker: a session that is lost in the middle costs no candidate."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import Command, Result
from rpc_servers import KEY, Proxy, end_session, server, tracker
from tiny_studies import chain

from seqto.devices import tvm_run
from seqto.devices.tvm_links import RemoteLink
from seqto.devices.tvm_local import local_servers, stop_all
from seqto.graph.files import save_model

STUDY = ["model=local", "model.path=chain.onnx", "dataset=digits", "dataset.evaluation_size=40"]
STUDY += ["search=ladder", "sensitivity.samples=4", "precisions=[int8,float32]", "-m"]
# Code for any CPU of this kind and one core: both studies share what is compiled.
STUDY += ["device=tvm_rpc", "device.target.mcpu=null", "+device.target.num-cores=1"]
STUDY += ["device.threads=1", "device.chunk_size=10", "device.repeats=2", "device.warmup=0"]
STUDY += ["device.pause_seconds=0.1"]

CHUNKS = 4
"""A candidate's samples, in chunks."""


@pytest.fixture(autouse=True)
def place(tmp_path: Path) -> Iterator[Path]:
    save_model(chain(1), tmp_path / "chain.onnx")
    yield tmp_path
    stop_all()


def assert_whole(result: Result, folder: Path) -> None:
    """Check that the study ended as if nothing had happened."""
    assert result.code == 0, result.err
    (path,) = folder.glob("multirun/*/*/report.json")
    report = json.loads(path.read_text())
    assert [each["state"] for each in report["candidates"]] == ["COMPLETE"] * 3
    assert report["lost"] == [] and report["recommended"]
    assert "models:/seqto-chain-tvm_rpc-static" in result.out


@pytest.mark.slow
def test_the_serving_process_is_killed_in_mid_study(
    seqto: Command, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, sent, killed = RemoteLink.call, [0], []

    def disturbed(link: RemoteLink, function: Any, *arguments: Any) -> Any:
        if function is tvm_run.run_samples:
            # The float model's samples come first; this is in the middle of the first candidate's.
            if sent[0] == CHUNKS + CHUNKS // 2:
                end_session(f"--tracker 127.0.0.1:{local_servers(link.key, 1).port}")
                killed.append(link.name)
            sent[0] += 1
        return call(link, function, *arguments)

    monkeypatch.setattr(RemoteLink, "call", disturbed)
    result = seqto(*STUDY, "device.start_local=true")
    assert killed == ["tvm_rpc"] and sent[0] > CHUNKS + CHUNKS // 2 + 1
    assert_whole(result, place)


@pytest.mark.slow
def test_the_connection_is_reset_in_mid_study(seqto: Command, place: Path) -> None:
    with tracker() as port, server(port, address="127.0.0.2") as board:
        proxy = Proxy("127.0.0.2", board.port, 30_000, lambda number: number == 3, reset=True)

        def start_again() -> None:
            # TVM's server no longer listens then; its owner starts it again.
            while not proxy.broken:
                time.sleep(0.1)
            board.kill()
            board.start()

        threading.Thread(target=start_again, daemon=True).start()
        try:
            where = [f"device.tracker=127.0.0.1:{port}", f"device.key={KEY}"]
            result = seqto(*STUDY, *where)
        finally:
            proxy.close()
    assert proxy.broken == 1 and proxy.sessions > 3
    assert_whole(result, place)

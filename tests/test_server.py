"""The server that `scripts/server` starts, on a PostgreSQL of its own."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest
from forked_commands import Forked
from mlflow.tracking import MlflowClient
from ports import free_port
from tiny_studies import chain

SCRIPT = Path(__file__).parent.parent / "scripts" / "serve.py"
pytest.importorskip("psycopg2", reason="needs seqto[server]")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not list(Path("/usr/lib/postgresql").glob("*/bin/initdb")), reason="needs PostgreSQL"
    ),
]

STUDY = (
    *("model=local", "model.path=chain.onnx", "dataset.evaluation_size=100"),
    *("search=ladder", "sensitivity=paper", "sensitivity.samples=4"),
    *("device.warmup=0", "device.repeats=1", "device.workers=1"),
)
COUNT = 8
"""Candidates of the ladder over six convolutions and a dense layer."""


class Server:
    """A server that can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *words: str) -> None:
        command = [sys.executable, str(SCRIPT), "--folder", str(self.folder / "data")]
        with (self.folder / "server.log").open("a") as log:
            self._process = subprocess.Popen(
                [*command, "--port", str(self.port), "--workers", "1", *words],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        for _ in range(1200):
            assert self._process.poll() is None, (self.folder / "server.log").read_text()
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{self.uri}/health", timeout=5).close()
                return
            time.sleep(0.2)
        raise TimeoutError((self.folder / "server.log").read_text())

    def kill(self) -> None:
        """End it without a word, with the server itself, but not its database."""
        assert self._process is not None
        number = self._process.pid
        children = Path(f"/proc/{number}/task/{number}/children").read_text().split()
        self._process.kill()
        for child in children:
            os.killpg(int(child), signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """End it as asked to, with its database."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(timeout=60)


@pytest.fixture
def server() -> Iterator[Server]:
    # Not in pytest's folder, which PostgreSQL's user cannot enter.
    folder = Path(tempfile.mkdtemp(prefix="seqto-server-"))
    folder.chmod(0o755)
    held = Server(folder)
    try:
        yield held
    finally:
        held.stop()
        shutil.rmtree(folder, ignore_errors=True)


def started(folder: Path, uri: str, *words: str) -> Forked:
    folder.mkdir()
    (folder / "chain.onnx").write_bytes(chain(6).to_bytes())
    plain = {k: v for k, v in os.environ.items() if not k.startswith("MLFLOW_")}
    own = {"SEQTO_CACHE": str(folder / "cache"), "MLFLOW_TRACKING_URI": uri}
    return Forked(["seqto", *STUDY, *words, "-m"], folder, {**plain, **own})


def test_studies_at_once_wait_for_a_server_that_was_killed(server: Server, tmp_path: Path) -> None:
    server.start()
    client = MlflowClient(server.uri)
    words = {"one": "sensitivity.samples=4", "two": "sensitivity.samples=5"}
    processes = [started(tmp_path / name, server.uri, each) for name, each in words.items()]
    while not _under_way(client, len(processes)):
        _check_runs(processes)
        time.sleep(0.1)
    server.kill()
    time.sleep(3)
    _check_runs(processes)
    server.start()
    for process in processes:
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, out + err
        assert "waiting for it to come back" in err and "Traceback" not in err
    experiment = client.get_experiment_by_name("seqto").experiment_id
    runs = client.search_runs([experiment])
    studies = {run.info.run_id for run in runs if run.data.tags["seqto.kind"] == "study"}
    assert len(studies) == 2
    for study in studies:
        own = [run for run in runs if run.data.tags.get("mlflow.parentRunId") == study]
        done = [run for run in own if run.info.status == "FINISHED"]
        assert len({run.data.tags["seqto.key"] for run in done}) == len(done) == COUNT
        assert {run.data.tags["seqto.index"] for run in done} == {str(at) for at in range(COUNT)}
    assert not [run for run in runs if run.info.status == "RUNNING"]
    # Artifacts went through the server.
    assert list((server.folder / "data" / "artifacts").rglob("report.html"))


def _check_runs(processes: list[Forked]) -> None:
    for each in processes:
        assert each.poll() is None, each.communicate()


def _under_way(client: MlflowClient, studies: int) -> bool:
    """Tell whether so many studies have begun, and one of their candidates has ended.

    Who has not reached a server yet does not wait for it.
    """
    found = client.get_experiment_by_name("seqto")
    runs = [] if found is None else client.search_runs([found.experiment_id])
    begun = [run for run in runs if run.data.tags["seqto.kind"] == "study"]
    return len(begun) == studies and any(run.info.status == "FINISHED" for run in runs)


def test_only_known_users_get_in(server: Server) -> None:
    server.start("--auth", "--backend", f"sqlite:///{server.folder}/store.db")
    asked = f"{server.uri}/api/2.0/mlflow/experiments/search?max_results=1"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(asked, timeout=30)
    users = server.folder / "data" / "users.ini"
    assert users.stat().st_mode & 0o077 == 0, "nobody else reads it"
    (password,) = [
        line.split(" = ")[1] for line in users.read_text().splitlines() if "word" in line
    ]
    request = urllib.request.Request(asked)
    request.add_header("Authorization", f"Basic {b64encode(f'admin:{password}'.encode()).decode()}")
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200

"""A study on a real cluster of two ray nodes, with folders, homes and caches of their own."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient
from mlflow_server import served

pytest.importorskip("ray", reason="needs seqto[ray]")
pytest.importorskip("hydra_plugins.hydra_ray_launcher", reason="needs seqto[ray]")
pytestmark = pytest.mark.slow

STUDY = ("search=ladder", "search.step=6", "dataset.evaluation_size=100", "device.repeats=1")
"""Of the embedded model: no node has any file of the driver's."""


@dataclass(frozen=True)
class Cluster:
    """Two nodes, and the server that they and the driver record to."""

    folder: Path
    address: str
    server: str
    nodes: tuple["subprocess.Popen[bytes]", ...]

    def start(self, name: str, *words: str) -> "subprocess.Popen[str]":
        """Start a study in a folder of its own; the server is known by the environment only."""
        (self.folder / name).mkdir()
        return subprocess.Popen(
            [sys.executable, "-m", "seqto", *STUDY, *words, f"tracking.experiment={name}", "-m"],
            cwd=self.folder / name,
            env={**surroundings(self.folder / name), "MLFLOW_TRACKING_URI": self.server},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def launcher(self) -> tuple[str, str]:
        return "hydra/launcher=ray", f"hydra.launcher.ray.init.address={self.address}"

    def finished(self, name: str) -> list[tuple[object, ...]]:
        """Return what was measured, without what depends on the moment."""
        client = MlflowClient(self.server)
        experiment = client.get_experiment_by_name(name)
        if experiment is None:
            return []
        condition = "tags.`seqto.kind` = 'candidate' and attributes.status = 'FINISHED'"
        return sorted(
            (
                int(run.data.params["index"]),
                *(
                    run.data.tags.get(tag, "")
                    for tag in ("seqto.key", "seqto.sha256", "seqto.rank")
                ),
                *(run.data.metrics[each] for each in ("accuracy_loss", "divergence", "size_bytes")),
            )
            for run in client.search_runs([experiment.experiment_id], condition)
        )


def surroundings(home: Path) -> dict[str, str]:
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("MLFLOW_", "RAY_"))}
    own = {"HOME": str(home), "SEQTO_CACHE": str(home / "cache"), "RAY_USAGE_STATS_ENABLED": "0"}
    path = os.pathsep.join(os.path.abspath(each) for each in sys.path if each)
    return {**plain, **own, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextlib.contextmanager
def node(home: Path, *words: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a node of one core in this folder, and end it with all it started."""
    home.mkdir()
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus", "1"]
    command += ["--node-ip-address", "127.0.0.1", "--object-store-memory", "80000000", *words]
    with (home / "node.log").open("w") as log:
        process = subprocess.Popen(
            command,
            cwd=home,
            env=surroundings(home),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, migrated_store: Path) -> Iterator[Cluster]:
    folder, port = tmp_path_factory.mktemp("ray"), free_port()
    shutil.copy(migrated_store, folder / "mlflow.db")
    address = f"127.0.0.1:{port}"
    # Sockets have short names only.
    short = Path(f"/tmp/seqto-ray-{os.getpid()}")
    head = ("--head", "--port", str(port), "--include-dashboard", "false", "--temp-dir", str(short))
    with (
        served(f"sqlite:///{folder}/mlflow.db", folder) as server,
        node(folder / "one", *head) as one,
    ):
        _wait_for(port)
        with node(folder / "two", "--address", address) as two:
            _wait_until_joined(folder / "two" / "node.log")
            yield Cluster(folder, address, server, (one, two))
    shutil.rmtree(short, ignore_errors=True)


def _wait_for(port: int) -> None:
    for _ in range(600):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise TimeoutError("the head node does not answer")


def _wait_until_joined(log: Path) -> None:
    for _ in range(600):
        if "Ray runtime started" in log.read_text():
            return
        time.sleep(0.1)
    raise TimeoutError(f"the second node did not join: {log.read_text()}")


def ended(process: "subprocess.Popen[str]", code: int = 0) -> str:
    out, err = process.communicate(timeout=400)
    assert process.returncode == code, out + err
    return out + err


def test_store_in_a_file_is_refused_before_anything_runs(cluster: Cluster) -> None:
    store = f"tracking.uri=sqlite:///{cluster.folder}/own.db"
    said = ended(cluster.start("refused", *cluster.launcher, store), 1)
    (line,) = said.splitlines()
    assert "on other machines, which cannot write to sqlite:" in line and "mlflow server" in line
    assert not (cluster.folder / "own.db").exists()


def test_front_is_the_one_of_this_machine_also_when_a_node_is_lost(cluster: Cluster) -> None:
    ended(cluster.start("here", "device.workers=1"))
    here = cluster.finished("here")
    process = cluster.start("there", *cluster.launcher, "study.batch=2")
    while len(cluster.finished("there")) < 1 and process.poll() is None:
        time.sleep(0.2)
    os.killpg(cluster.nodes[1].pid, signal.SIGKILL)
    said = ended(process)
    assert "unexpected" not in said
    assert cluster.finished("there") == here and len(here) > 3
    client = MlflowClient(cluster.server)
    experiment = client.get_experiment_by_name("there").experiment_id
    statuses = {run.info.status for run in client.search_runs([experiment])}
    assert statuses <= {"FINISHED", "KILLED"}, "nothing is left running"

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

import numpy as np
import pytest
from mlflow.tracking import MlflowClient
from mlflow_server import served
from ports import free_port
from sklearn.datasets import load_digits
from tiny_studies import chain

pytest.importorskip("ray", reason="needs seqto[ray]")
pytestmark = pytest.mark.slow

STUDY = (
    *("model=local", "model.path=chain.onnx", "dataset=npz", "dataset.path=digits.npz"),
    *("dataset.calibration_size=50", "dataset.evaluation_size=200"),
    *("search=ladder", "search.step=1", "sensitivity=paper", "sensitivity.samples=4"),
    *("device.warmup=0", "device.repeats=3"),
)
"""Of files that only the driver has."""

_PATIENCE = "RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S"
"""How long a head waits for the server of a driver from outside: 30 seconds, unless told."""

LAYERS = 9
"""So there are three groups of candidates: each node gets work."""

DEVICES = """
import os
import signal
import time
from pathlib import Path

from seqto.devices.onnxruntime import OnnxRuntimeDevice


class Deadly(OnnxRuntimeDevice):
    def load(self, model):
        nodes = model.proto.graph.node
        layers = [each for each in nodes if each.op_type in ("Conv", "Gemm")]
        made = {each.output[0] for each in nodes if each.op_type == "DequantizeLinear"}
        full = len(layers) == 9 and all(each.input[1] in made for each in layers)
        if "ON_A_NODE" in os.environ and full:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().load(model)


class Waiting(OnnxRuntimeDevice):
    def load(self, model):
        if os.environ.get("ON_A_NODE") == "two":
            Path.home().joinpath("busy").touch()
            time.sleep(300)
        return super().load(model)


class Slow(OnnxRuntimeDevice):
    def load(self, model):
        time.sleep(0.3 * ("ON_A_NODE" in os.environ))
        return super().load(model)
"""
"""Devices of the user's own, of which nodes have no file: one kills whoever runs full int8,
one keeps the second node busy for good, one takes its time on nodes."""


@dataclass(frozen=True)
class Cluster:
    """Two nodes, and the server that they and the driver record to."""

    folder: Path
    address: str
    door: str
    """The address for drivers on machines that are no part of it."""
    server: str
    nodes: tuple["subprocess.Popen[bytes]", ...]

    def start(
        self, name: str, *words: str, experiment: str | None = None
    ) -> "subprocess.Popen[str]":
        """Start a study in a folder of its own; the server is known by the environment only."""
        folder = self.folder / name
        folder.mkdir()
        (folder / "chain.onnx").write_bytes(chain(LAYERS - 1).to_bytes())
        (folder / "devices.py").write_text(DEVICES)
        digits = load_digits()
        images = (digits.images[:, None] / 16).astype(np.float32)
        np.savez(folder / "digits.npz", image=images, labels=digits.target)
        command = [sys.executable, "-m", "seqto"]
        return subprocess.Popen(
            [*command, *STUDY, *words, f"tracking.experiment={experiment or name}", "-m"],
            cwd=folder,
            env={**surroundings(folder), "MLFLOW_TRACKING_URI": self.server},
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
                int(run.data.tags["seqto.index"]),
                *(
                    run.data.tags.get(tag, "")
                    for tag in ("seqto.key", "seqto.sha256", "seqto.rank")
                ),
                *(run.data.metrics[each] for each in ("accuracy_loss", "divergence", "size_bytes")),
            )
            for run in client.search_runs([experiment.experiment_id], condition)
        )

    def statuses(self, name: str) -> dict[str, str]:
        """Return what became of each run."""
        client = MlflowClient(self.server)
        experiment = client.get_experiment_by_name(name)
        runs = client.search_runs([experiment.experiment_id]) if experiment else []
        return {run.info.run_id: run.info.status for run in runs}


def surroundings(home: Path) -> dict[str, str]:
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("MLFLOW_", "RAY_"))}
    own = {"HOME": str(home), "SEQTO_CACHE": str(home / "cache"), "RAY_USAGE_STATS_ENABLED": "0"}
    path = os.pathsep.join(os.path.abspath(each) for each in sys.path if each)
    return {**plain, **own, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


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
            env={**surroundings(home), "ON_A_NODE": home.name, _PATIENCE: "120"},
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
    head += ("--ray-client-server-port", str(client := free_port()))
    with (
        served(f"sqlite:///{folder}/mlflow.db", folder) as server,
        node(folder / "one", *head) as one,
    ):
        _wait_for(port)
        with node(folder / "two", "--address", address) as two:
            _wait_until_joined(folder / "two" / "node.log")
            yield Cluster(folder, address, f"ray://127.0.0.1:{client}", server, (one, two))
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


@pytest.fixture(scope="module")
def here(cluster: Cluster) -> list[tuple[object, ...]]:
    """What the study measures on this machine, in one process."""
    ended(cluster.start("here", "device._target_=devices.Waiting", "device.workers=1"))
    return cluster.finished("here")


def test_study_whose_driver_is_killed_goes_on_from_another_machine(
    cluster: Cluster, here: list[tuple[object, ...]]
) -> None:
    """With another folder, home and cache; what was finished is not measured again."""
    words = ("device._target_=devices.Slow", *cluster.launcher)
    first = cluster.start("first", *words, experiment="moved")
    while len(cluster.finished("moved")) < 2 and first.poll() is None:
        time.sleep(0.1)
    first.kill()
    first.communicate()
    before = cluster.statuses("moved")
    assert first.returncode == -signal.SIGKILL and "RUNNING" in before.values(), "it was under way"
    said = ended(cluster.start("second", *words, experiment="moved"))
    assert "error:" not in said and "Traceback" not in said
    assert cluster.finished("moved") == here
    after = cluster.statuses("moved")
    assert "RUNNING" not in after.values()
    kept = {run for run, status in before.items() if status == "FINISHED"}
    assert kept and all(after[run] == "FINISHED" for run in kept)
    assert list(after.values()).count("FINISHED") == LAYERS + 2, "candidates and their one study"


def test_front_is_the_one_of_this_machine_also_when_a_node_is_lost(
    cluster: Cluster, here: list[tuple[object, ...]]
) -> None:
    process = cluster.start("there", "device._target_=devices.Waiting", *cluster.launcher)
    busy = cluster.folder / "two" / "busy"
    while not busy.exists() and process.poll() is None:
        time.sleep(0.1)
    os.killpg(cluster.nodes[1].pid, signal.SIGKILL)
    said = ended(process)
    assert "error:" not in said
    assert "was lost" in said and "it runs again" in said
    assert cluster.finished("there") == here and len(here) == LAYERS + 1
    statuses = list(cluster.statuses("there").values())
    assert set(statuses) == {"FINISHED"} and len(statuses) == LAYERS + 2, (
        "nothing ran twice, or runs"
    )
    # Nobody there decoded, calibrated or computed the reference: there is no cache.
    assert not [each for node in ("one", "two") for each in (cluster.folder / node).glob("cache*")]


def test_candidate_that_kills_its_process_fails_after_so_many_times(cluster: Cluster) -> None:
    """From outside the cluster, with a device whose file no node has."""
    door = ("hydra/launcher=ray", f"hydra.launcher.ray.init.address={cluster.door}")
    device = ("device._target_=devices.Deadly", "device.repeats=1", "study.attempts=2")
    said = ended(cluster.start("deadly", *door, *device))
    assert "Traceback" not in said
    finished = cluster.finished("deadly")
    assert [each[0] for each in finished] == list(range(1, LAYERS + 1)), "all but full int8"
    client = MlflowClient(cluster.server)
    experiment = client.get_experiment_by_name("deadly").experiment_id
    (failed,) = client.search_runs([experiment], "attributes.status = 'FAILED'")
    assert failed.data.tags["seqto.failure"].startswith("Lost: begun 2 times")


def test_address_without_a_cluster_is_one_line(cluster: Cluster) -> None:
    nobody = f"hydra.launcher.ray.init.address=127.0.0.1:{free_port()}"
    said = ended(cluster.start("nobody", "hydra/launcher=ray", nobody), 1)
    (line,) = said.splitlines()
    assert "ray cannot be joined at 127.0.0.1" in line and "ray start --head" in line

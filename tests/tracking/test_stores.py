"""Where an MLflow store and its experiment are, and the first contact with them."""

import contextlib
import http.server
import json
import multiprocessing
import os
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient
from suite_trackers import PLAN, Desk

from seqto.errors import TrackingError
from seqto.tracking.mlflow import MlflowTracker
from seqto.tracking.stores import Store
from seqto.types import Candidate

pytestmark = pytest.mark.usefixtures("no_mlflow_around")


def test_default_store_is_in_the_current_folder(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    migrated_store: Path,
) -> None:
    here = tmp_path / "a folder"
    here.mkdir()
    shutil.copy(migrated_store, here / "mlflow.db")
    monkeypatch.chdir(here)
    desk = Desk(tracker := MlflowTracker(), tracker.open_study(PLAN, True))
    trial = desk.finish(0)
    assert desk.tracker.trials(desk.study) == (trial,)
    assert MlflowClient(f"sqlite:///{here}/mlflow.db").get_run(desk.study)
    assert list((here / "mlruns").rglob("config.yaml")), "artifacts lie beside the store"


def test_store_of_the_environment_is_used(
    monkeypatch: pytest.MonkeyPatch, uri: str, client: MlflowClient
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    assert client.get_run(MlflowTracker(experiment="environment").open_study(PLAN, True))


def test_experiment_of_the_environment_is_used(
    uri: str, client: MlflowClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def experiment(**given: str) -> str:
        study = client.get_run(MlflowTracker(uri=uri, **given).open_study(PLAN, False))
        return str(client.get_experiment(study.info.experiment_id).name)

    number = client.create_experiment("by number")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", number)
    assert experiment() == "by number"
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "by name")
    assert experiment() == "by name" and experiment(experiment="mine") == "mine"
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", "4711")
    with pytest.raises(TrackingError, match="no experiment with the id 4711"):
        experiment()


def test_without_an_experiment_of_its_own_it_is_that_of_mlflow_run(
    uri: str, client: MlflowClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    outer = client.create_run(client.create_experiment("of mlflow run")).info
    monkeypatch.setenv("MLFLOW_RUN_ID", outer.run_id)
    study = client.get_run(MlflowTracker(uri=uri).open_study(PLAN, False))
    assert study.info.experiment_id == outer.experiment_id
    monkeypatch.delenv("MLFLOW_RUN_ID")
    alone = client.get_run(MlflowTracker(uri=uri).open_study(PLAN, False))
    assert client.get_experiment(alone.info.experiment_id).name == "seqto"


@pytest.mark.parametrize("begin", [MlflowTracker.open_study, MlflowTracker.start_trial])
def test_deleted_experiment_is_an_error_with_the_remedy(
    tracker: MlflowTracker, client: MlflowClient, begin: object
) -> None:
    experiment = client.create_experiment(tracker.experiment)
    client.delete_experiment(experiment)
    restore = f"mlflow experiments restore -x {experiment}"
    with pytest.raises(TrackingError, match=restore):
        if begin is MlflowTracker.open_study:
            tracker.open_study(PLAN, True)
        else:
            tracker.start_trial(None, 0, Candidate.excluding("a", ()), "alone")


def test_address_of_a_store_says_how_to_serve_it(
    desk: Desk, uri: str, client: MlflowClient
) -> None:
    address = desk.tracker.address(desk.study)
    experiment = client.get_run(desk.study).info.experiment_id
    page = f"http://127.0.0.1:5000/#/experiments/{experiment}/runs/{desk.study}"
    assert address.url == f"{page}?workflowType=machine_learning"
    command, *arguments = shlex.split(address.command)
    assert Path(command).name == "mlflow"
    # Served from the folder that the store is in, its name is enough.
    here = uri.replace(f"{Path.cwd()}/", "")
    assert arguments == ["ui", "--backend-store-uri", here] and here != uri


@pytest.mark.parametrize("slash", ["", "/"])
def test_address_of_a_server_is_its_page(slash: str) -> None:
    answer = {"experiment": {"experiment_id": "7", "name": "seqto", "lifecycle_stage": "active"}}
    with _server(json.dumps(answer)) as server:
        store = Store(server + slash)
        address = store.address(store.experiment_id, "abc")
        assert address.url == f"{server}/#/experiments/7/runs/abc?workflowType=machine_learning"
        assert address.command == ""


def test_server_that_is_not_mlflow_is_named() -> None:
    with _server("<html>Welcome</html>") as server, pytest.raises(TrackingError, match=server):
        MlflowTracker(uri=server).open_study(PLAN, True)


@pytest.mark.parametrize(
    ("wrong", "cause"),
    [
        ("http://127.0.0.1:9", "Connection refused"),
        ("sqlite:///{tmp}/text.db", "not a database"),
        ("sqlite:///{tmp}/text.db/more.db", "Not a directory|File exists|unable to open"),
        ("nonsense://somewhere", "unsupported URI"),
        ("postgresql://127.0.0.1:9/nothing", "psycopg|refused"),
    ],
)
def test_wrong_uri_is_an_error_soon(tmp_path: Path, wrong: str, cause: str) -> None:
    (tmp_path / "text.db").write_text("This is no database.\n" * 100)
    wrong = wrong.format(tmp=tmp_path)
    start = time.monotonic()
    with pytest.raises(TrackingError, match=f"(?s){wrong}.*({cause}).*Check tracking.uri"):
        MlflowTracker(uri=wrong).open_study(PLAN, True)
    assert time.monotonic() - start < 90, "MLflow by itself goes on trying for minutes"


@pytest.mark.slow
def test_processes_may_make_the_same_store_at_once(tmp_path: Path) -> None:
    code = (
        "from seqto.tracking.mlflow import MlflowTracker\n"
        "from seqto.types import StudyPlan\n"
        "print(MlflowTracker().open_study(StudyPlan('k', 'n', {}, {}, ''), False))\n"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=300) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    client = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    experiment = client.get_experiment_by_name("seqto").experiment_id
    assert len(client.search_runs([experiment])) == 2


@contextlib.contextmanager
def _server(answer: str) -> Iterator[str]:
    """Serve this answer to every question, as far as it goes like a tracking server."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer.encode())

        def log_message(self, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.slow
def test_process_killed_while_it_creates_the_store_leaves_nothing_half_made(tmp_path: Path) -> None:
    path = tmp_path / "new" / "mlflow.db"
    uri, unfinished = f"sqlite:///{path}", path.with_name(".mlflow.db.new")
    process = multiprocessing.get_context("fork").Process(target=_create_store, args=[uri])
    process.start()
    until = time.monotonic() + 60
    while time.monotonic() < until and not (
        unfinished.exists() and unfinished.stat().st_size > 50_000
    ):
        time.sleep(0.005)
    process.kill()
    process.join()
    assert unfinished.exists() and not path.exists(), "it was killed too late"
    assert Store(uri).client.search_experiments()
    assert sorted(each.name for each in path.parent.iterdir()) == ["mlflow.db"]


def _create_store(uri: str) -> None:
    _ = Store(uri).client

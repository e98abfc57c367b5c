"""`python -m seqto.report`: a study's files, made again from MLflow alone."""

import json
import re
import shlex
from pathlib import Path

import mlflow
import onnx
import pytest
from commands import Command
from mlflow.tracking import MlflowClient
from tiny_studies import Lab, chain

from seqto.cli.reporting import main
from seqto.graph.files import save_model
from seqto.report.commands import rebuild_command
from seqto.report.writing import write_files
from seqto.tracking.mlflow import MlflowTracker
from seqto.types import TrialState

FILES = ["front.png", "objectives.png", "report.html", "report.json", "sensitivity.png"]
QUICK = ["dataset.evaluation_size=100", "device.repeats=2", "search=ladder", "search.step=3"]
MODEL = ["model=local", 'model.path="my model (1).onnx"', "sensitivity=paper"]


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return the one line that these arguments get."""
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 1
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_everything_is_made_again_and_candidates_are_rebuilt(
    seqto: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "my model (1).onnx"
    save_model(chain(), path)
    result = seqto(*QUICK, *MODEL, "-m")
    assert result.code == 0, result.err
    (folder,) = tmp_path.glob("multirun/*/*")
    assert f"report:  {folder.relative_to(tmp_path)}/report.html" in result.out
    content = json.loads((folder / "report.json").read_text())
    study = content["study"]["id"]
    store = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    assert set(FILES) <= {each.path for each in store.list_artifacts(study)}

    tracker = MlflowTracker()
    record = tracker.read_study(study)
    small = record.trials[content["recommended"]["small"]]
    # Before the study's own model is gone, which only building a candidate needs.
    command = rebuild_command(record, small)
    assert command in (folder / "report.html").read_text().replace("&#39;", "'").replace(
        "&#34;", '"'
    )
    again = seqto(*shlex.split(command)[1:])
    assert again.code == 0, again.err
    (saved,) = tmp_path.glob("outputs/*/*/*.onnx")
    loaded = mlflow.onnx.load_model("models:/seqto-my model (1)-cpu-static@small")
    assert loaded == mlflow.onnx.load_model(f"runs:/{small.id}/model")
    assert onnx.load(saved) == loaded

    path.unlink()
    main([study, "--output", str(tmp_path / "again")])
    assert "report:  again/report.html" in capsys.readouterr().out
    made = sorted(each.name for each in (tmp_path / "again").iterdir())
    assert made == FILES
    assert (tmp_path / "again/report.json").read_bytes() == (folder / "report.json").read_bytes()
    # Beside the first lie the models, to which it leads.
    first, second = ((each / "report.html").read_text() for each in (folder, tmp_path / "again"))
    assert "beside this page" in first and "beside this page" not in second
    assert _without_links(first) == _without_links(second)


def _without_links(page: str) -> str:
    return " ".join(re.sub(r'<p class="links">.*?</p>', "", page, flags=re.DOTALL).split())


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return Lab.at(tmp_path_factory.mktemp("lab"), chain(2))


@pytest.fixture
def tracker(migrated_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MlflowTracker:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_RUN_ID", raising=False)
    monkeypatch.delenv("SEQTO_DEBUG", raising=False)
    (tmp_path / "mlflow.db").write_bytes(migrated_store.read_bytes())
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    return MlflowTracker(uri=uri)


def test_the_environment_is_the_studys_and_files_are_logged_if_wanted(
    lab: Lab, tracker: MlflowTracker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = lab.run(
        tracker,
        publish=lambda record, front: write_files(
            tmp_path / "own", record, front, {"python": "0.9"}, None
        )[3:4],
    ).record.id
    main([study])
    content = json.loads((tmp_path / "report.json").read_text())
    assert content["environment"] == {"python": "0.9"}
    names = {each.path for each in tracker.client.list_artifacts(study)}
    assert "report.html" not in names, "only with --log"
    main([study, "--log"])
    assert f"logged:  {study}" in capsys.readouterr().out
    assert set(FILES) <= {each.path for each in tracker.client.list_artifacts(study)}

    # A study that is resumed has its old answer, but not its new one.
    tracker.client.update_run(study, status="RUNNING")
    assert f"study '{study}' has no answer yet: it is RUNNING" in complaint(capsys, study)
    tracker.close_study(study, TrialState.FAILED)
    assert "it is FAILED" in complaint(capsys, study)


def test_other_runs_are_refused(
    lab: Lab, tracker: MlflowTracker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = lab.run(tracker).record
    child = record.trials[0].id
    line = complaint(capsys, child)
    assert line == f"seqto: error: run '{child}' is a candidate: give its study, {record.id}."
    other = tracker.client.create_run(tracker.client.create_experiment("others")).info.run_id
    assert "is no study of seqto" in complaint(capsys, other)
    assert "has no run 'nope'" in complaint(capsys, "nope")
    assert "has no report.json" in complaint(capsys, record.id)
    assert not (tmp_path / "report.html").exists()


def test_no_store_is_made_where_none_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SEQTO_DEBUG", raising=False)
    line = complaint(capsys, "abc", "--tracking-uri", "sqlite:///nowhere.db")
    assert "there is no MLflow store sqlite:///nowhere.db" in line
    assert list(tmp_path.iterdir()) == []

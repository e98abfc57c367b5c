"""MLproject: what `mlflow run` makes of its parameters, and where its runs nest."""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from mlflow.entities import Run
from mlflow.projects.utils import load_project
from mlflow.tracking import MlflowClient
from mlflow.utils.environment import _PythonEnv

from seqto.config.compose import composed

ROOT = Path(__file__).parent.parent
QUICK = {
    "search": "ladder",
    "sensitivity": "paper",
    "search.step": "24",
    "dataset.evaluation_size": "50",
    "device.repeats": "1",
}


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mlproject", ROOT / "scripts" / "mlproject.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def mlflow_run(
    tmp_path: Path, cache: Path, migrated_store: Path
) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Return what types `mlflow run` in a folder other than the project's."""
    shutil.copy(migrated_store, tmp_path / "mlflow.db")
    beside = str(Path(sys.executable).parent)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")},
        "PATH": f"{beside}{os.pathsep}{os.environ['PATH']}",
        "SEQTO_CACHE": str(cache),
    }

    def run(
        *arguments: str, manager: str = "local", **given: str
    ) -> "subprocess.CompletedProcess[str]":
        parameters = [word for name, value in given.items() for word in ("-P", f"{name}={value}")]
        command = [sys.executable, "-m", "mlflow", "run", str(ROOT), "--env-manager", manager]
        return subprocess.run(
            [*command, *arguments, *parameters],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=900,
        )

    return run


def runs(folder: Path) -> list[Run]:
    client = MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    experiments = [each.experiment_id for each in client.search_experiments()]
    return list(client.search_runs(experiments))


def kind(run: Run) -> str:
    return str(run.data.tags.get("seqto.kind", "project"))


@pytest.mark.slow
def test_study_nests_under_the_run_that_mlflow_made(
    mlflow_run: Callable[..., "subprocess.CompletedProcess[str]"], tmp_path: Path
) -> None:
    odd = tmp_path / "my model's [best], (v2)"
    odd.mkdir()
    shutil.copy(ROOT / "seqto" / "models" / "data" / "digits.onnx", odd / "it's mine.onnx")
    given = {"path": f"{odd.relative_to(tmp_path)}/it's mine.onnx", "model.name": 'a "b" c'}
    result = mlflow_run(**given, **QUICK)
    assert result.returncode == 0, result.stderr
    found: dict[str, list[Run]] = {}
    for run in runs(tmp_path):
        found.setdefault(kind(run), []).append(run)
    (project,), (study,) = found["project"], found["study"]
    assert project.info.status == study.info.status == "FINISHED"
    assert study.data.tags["mlflow.parentRunId"] == project.info.run_id
    assert study.info.experiment_id == project.info.experiment_id, "shown as nested"
    parents = {run.data.tags["mlflow.parentRunId"] for run in found["candidate"]}
    assert parents == {study.info.run_id}
    assert study.data.params["model.path"] == str(odd / "it's mine.onnx")
    assert study.data.tags["seqto.model"] == 'a "b" c'


@pytest.mark.slow
def test_candidate_nests_too_and_takes_lists(
    mlflow_run: Callable[..., "subprocess.CompletedProcess[str]"], tmp_path: Path
) -> None:
    given = {"candidate.excluded": "['/dense/Gemm']", "dataset.evaluation_size": "50"}
    result = mlflow_run("-e", "candidate", **given)
    assert result.returncode == 0, result.stderr
    project, candidate = sorted(runs(tmp_path), key=kind, reverse=True)
    assert candidate.data.tags["mlflow.parentRunId"] == project.info.run_id
    assert candidate.data.params["excluded_count"] == "1"


@pytest.mark.slow
def test_a_study_that_fails_fails_the_run(
    mlflow_run: Callable[..., "subprocess.CompletedProcess[str]"], tmp_path: Path
) -> None:
    result = mlflow_run("-e", "study", **{"quantization.exclude": "[nothing]"})
    assert result.returncode != 0
    assert "quantization.exclude names layers" in result.stderr
    (project,) = runs(tmp_path)
    assert project.info.status == "FAILED"


@pytest.mark.slow
@pytest.mark.skipif(
    not os.environ.get("SEQTO_TEST_VIRTUALENV") or not shutil.which("pyenv"),
    reason="installs all packages anew (minutes): set SEQTO_TEST_VIRTUALENV=1, and have pyenv",
)
def test_study_in_a_virtualenv(
    mlflow_run: Callable[..., "subprocess.CompletedProcess[str]"], tmp_path: Path
) -> None:
    result = mlflow_run(manager="virtualenv", **QUICK)
    assert result.returncode == 0, result.stderr
    assert sorted(map(kind, runs(tmp_path)))[-2:] == ["project", "study"]


def test_the_environment_is_this_checkout() -> None:
    project = load_project(str(ROOT))
    environment = _PythonEnv.from_yaml(project.env_config_path)
    assert environment.dependencies == ["."]


@pytest.mark.parametrize("entry_point", ["main", "study", "candidate", "promote", "report"])
def test_entry_points_keep_every_value_whole(entry_point: str, tmp_path: Path) -> None:
    value = 'it\'s [a], "b" $HOME {c} `d`'
    given = {"run": value} if entry_point == "report" else {"model": value, "odd.key": value}
    project = load_project(str(ROOT))
    command = project.get_entry_point(entry_point).compute_command(given, str(tmp_path))
    # The shell's own view of it.
    printed = subprocess.run(
        ["bash", "-c", command.replace("python scripts/mlproject.py", "printf '%s\\n'", 1)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert printed.stdout.splitlines().count(value) == len(given)


@pytest.mark.parametrize(
    "value",
    ["plain", "with space", "it's", 'the "best"', "a'b\"c", "back\\slash", "(v2)", "a:b", "ünï"],
)
def test_values_reach_the_config_as_they_are(script: ModuleType, value: str) -> None:
    words = script.command("candidate", {"tracking.experiment": value, "path": f"{value}.onnx"})
    config = composed(words[1:])
    assert config.tracking.experiment == value
    assert config.model.path == f"{value}.onnx"


@pytest.mark.parametrize("value", ["a,b.onnx", "[a].onnx", "{a: b}", "null", "12"])
def test_paths_are_never_read_as_anything_else(script: ModuleType, value: str) -> None:
    (_, *words) = script.command("candidate", {"path": value, "data": value})
    config = composed([*words, "dataset=images"])
    assert config.model.path == config.dataset.path == value


def test_words_of_the_entry_points(script: ModuleType) -> None:
    assert script.command("study", {"model": "digits", "search.step": "2"}) == [
        *("seqto", "model=digits", "search.step=2", "-m")
    ]
    assert script.command("study", {"data": "some.npz"})[1:3] == [
        *("dataset=npz", "dataset.path='some.npz'")
    ]
    given = {"model": "digits", "rollback": "true", "dry_run": "true", "path": "/dev/null"}
    assert script.command("promote", given) == [
        *("seqto.promote", "model=digits", "rollback", "--dry-run")
    ]
    assert script.command("report", {"run": "abc"}) == ["seqto.report", "abc"]

"""A password in an address appears nowhere: not in files, the database, logs or the terminal."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from forked_commands import Forked, Whole
from mlflow.tracking import MlflowClient
from mlflow_server import guarded, served

pytestmark = pytest.mark.slow

PASSWORD, CHANGED = "Tr0ub4dor-and-3", "c0rrect-h0rse"
DATA = "dataset.evaluation_size=50"
STUDY = (
    *("search=ladder", "search.step=24", "precisions=[int8,float32]", "sensitivity=local"),
    *("sensitivity.samples=2", DATA, "device.warmup=0", "device.repeats=1"),
)
GIT = "https://bot:Tr0ub4dor-and-3@example.org/repository.git"
"""MLflow notes where the program comes from."""


class Place:
    """A folder in which commands run, and all that they said."""

    def __init__(self, folder: Path, store: Path) -> None:
        self.folder, self.said = folder, ""
        folder.mkdir()
        (folder.parent / "server").mkdir()
        shutil.copy(store, folder.parent / "server" / "mlflow.db")
        subprocess.run(["git", "init", "-q", "."], cwd=folder, check=True)
        subprocess.run(["git", "remote", "add", "origin", GIT], cwd=folder, check=True)
        commit = ["git", "-c", "user.name=x", "-c", "user.email=x", "commit", "-q"]
        subprocess.run([*commit, "--allow-empty", "-m", "x"], cwd=folder, check=True)
        # Where git itself keeps it is not of interest.
        (folder / ".git").rename(folder.parent / ".git")

    def run(self, module: str, *words: str, code: int = 0, **variables: str) -> str:
        """Run a command there to its end, which has to be this, and return what it said."""
        plain = {k: v for k, v in os.environ.items() if not k.startswith("MLFLOW_")}
        own = {
            "SEQTO_CACHE": str(self.folder.parent / "cache"),
            "COLUMNS": "200",
        }
        kind = Whole if "hydra/launcher=joblib" in words else Forked
        process = kind([module, *words], self.folder, {**plain, **own, **variables})
        said = "".join(process.communicate(timeout=300))
        assert process.returncode == code, said
        self.said += said
        return said

    def leaks(self) -> list[str]:
        """Return the files that hold a password, and the lines of the terminal that do."""
        root = self.folder.parent
        files = [each for each in root.rglob("*") if each.is_file() and ".git" not in each.parts]
        assert len(files) > 50
        found = [str(each) for each in files if _has_secret(each.read_bytes())]
        return found + [line for line in self.said.splitlines() if _has_secret(line.encode())]


def _has_secret(content: bytes) -> bool:
    return any(each.encode() in content for each in (PASSWORD, CHANGED))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, migrated_store: Path) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("leaks") / "work"
    yield Place(folder, migrated_store)


@pytest.fixture(scope="module")
def addresses(place: Place) -> Iterator[list[str]]:
    folder = place.folder.parent / "server"
    with (
        served(f"sqlite:///{folder}/mlflow.db", folder) as server,
        guarded(server, PASSWORD, CHANGED) as addresses,
    ):
        yield addresses


def test_no_command_leaks_a_password(place: Place, addresses: list[str]) -> None:
    uri, changed = (f"tracking.uri={each}" for each in addresses)
    said = place.run("seqto", *STUDY, uri, "-m")
    assert "open:    http://127.0.0.1:" in said and "View run" not in said
    grid = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "quantization=static,dynamic")
    again = place.run("seqto", *STUDY, changed, *grid, "-m")
    assert "2 of 2 candidates were measured before and not run again" in again, "the same study"
    place.run("seqto", DATA, uri, "hydra.verbose=true")
    place.run("seqto.promote", DATA, MLFLOW_TRACKING_URI=addresses[1])
    client = MlflowClient(addresses[0])
    (experiment,) = client.search_experiments(filter_string="name = 'seqto'")
    studies = client.search_runs([experiment.experiment_id], "tags.`seqto.kind` = 'study'")
    assert {each.info.status for each in studies} == {"FINISHED"}
    assert len(studies) == 2, "one for each quantization, whatever the password"
    run = studies[0].info.run_id
    place.run("seqto.report", run, "--tracking-uri", addresses[0], "--output", "again")
    config = client.download_artifacts(run, "config.yaml", str(place.folder))
    assert "uri: http://***@127.0.0.1:" in Path(config).read_text()
    assert (place.folder / "multirun").is_dir() and list(place.folder.rglob(".hydra/config.yaml"))
    assert place.leaks() == []


NOBODY = f"ann:{PASSWORD}@127.0.0.1:9"


@pytest.mark.parametrize(
    "words",
    [
        ("tracking.uri=<bob>", "-m"),
        (f"tracking.uri=http://{NOBODY}", "-m"),
        ("tracking.uri=<ann>", "model=registry", "model.uri=models:/nobody/1"),
        (f"tracking.password={PASSWORD}",),
        (f"tracking=http://{NOBODY}",),
    ],
    ids=lambda words: words[0].partition(PASSWORD)[0],
)
@pytest.mark.parametrize("debug", ["", "1"])
def test_no_error_leaks_a_password(
    place: Place, addresses: list[str], words: tuple[str, ...], debug: str
) -> None:
    users = {"<ann>": addresses[0], "<bob>": addresses[0].replace("ann", "bob")}
    for user, address in users.items():
        words = tuple(word.replace(user, address) for word in words)
    said = place.run("seqto", *words, code=1, SEQTO_DEBUG=debug)
    assert not _has_secret(said.encode())
    # Who has to wait for a server sees that something goes on.
    lines = [each for each in said.splitlines() if not each.startswith("starting: ")]
    assert "Traceback" in said if debug else len(lines) == 1, said
    if users["<bob>"] in words[0]:
        assert "MLFLOW_TRACKING_USERNAME" in said and "does not answer" not in said


PRINTS = ("--cfg job", "-c all", "--cfg=hydra", "--info all", "--info config")


@pytest.mark.parametrize("option", PRINTS)
def test_no_print_of_a_config_leaks_a_password(place: Place, option: str) -> None:
    words = (f"tracking.uri=http://{NOBODY}", f"+tracking.storage.key={CHANGED}")
    said = place.run("seqto", *words, *option.split())
    assert not _has_secret(said.encode()) and "http://***@127.0.0.1:9" in said

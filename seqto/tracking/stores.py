"""An MLflow store and its experiment: their location, and the first contact with them."""

import contextlib
import functools
import logging
import os
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock
import mlflow
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from mlflow.tracking._tracking_service import utils as _tracking_service
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from seqto.errors import TrackingError
from seqto.logs import at_level, errors_only
from seqto.secrets import mask_error, masked, without_user
from seqto.tracking.migrations import counted_migrations
from seqto.tracking.patience import PatientClient
from seqto.tracking.ui import experiment_tags, run_page
from seqto.types import Address

_URI_VARIABLE = "MLFLOW_TRACKING_URI"
# By default MLflow tries for four minutes to reach a missing server.
_IMPATIENT = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}
_LONGEST_CAUSE = 200
_REFUSED = re.compile(r"error code 40[13]\b|UNAUTHENTICATED|PERMISSION_DENIED")


@dataclass(frozen=True)
class Store:
    """The store at this URI, and the experiment of this name in it.

    New runs are nested in the run `parent`, or in that of `mlflow run`, if there is one. Without a
    name, the experiment is that of this run, or the one that MLflow's environment variables name,
    or `seqto`.
    """

    uri: str
    experiment: str | None = None
    parent: str | None = None

    @functools.cached_property
    def client(self) -> MlflowClient:
        """MLflow's own client; creates the store if it is missing."""
        with self._first_contact():
            client = PatientClient(self.uri)
            client.get_experiment_by_name(self._experiment_name)
        _keep_from_printing(client)
        return client

    @functools.cached_property
    def project_run(self) -> str | None:
        """The run in which all others are nested, if it is in this store."""
        run = self.parent or os.environ.get("MLFLOW_RUN_ID")
        if run:
            with contextlib.suppress(MlflowException):
                return str(self.client.get_run(run).info.run_id)
        return None

    @functools.cached_property
    def experiment_id(self) -> str:
        """The experiment of new runs, created if it is missing."""
        if not self.experiment and self.project_run:
            # MLflow shows runs as nested only within one experiment.
            return str(self.client.get_run(self.project_run).info.experiment_id)
        found = self.client.get_experiment_by_name(self._experiment_name)
        if found is None:
            with unless_it_exists():
                self.client.create_experiment(self._experiment_name, tags=experiment_tags())
            found = self.client.get_experiment_by_name(self._experiment_name)
        assert found is not None
        if found.lifecycle_stage == "deleted":
            raise TrackingError(
                f"MLflow's experiment {self._experiment_name!r} is deleted. Restore it with "
                f"`mlflow experiments restore -x {found.experiment_id}`, or choose another with "
                "tracking.experiment."
            )
        return str(found.experiment_id)

    def check_answers(self) -> None:
        """Raise if a server does not answer; create nothing, neither there nor in files."""
        if self._is_served:
            with self._first_contact():
                MlflowClient(self.uri).get_experiment_by_name(self._experiment_name)

    def experiment_called(self, number: str) -> str:
        """Return the name of the experiment that has this id."""
        with self._first_contact():
            found = MlflowClient(self.uri)
            with contextlib.suppress(MlflowException):
                return str(found.get_experiment(number).name)
            known = found.search_experiments()
        raise TrackingError(
            f"MLflow at {self.uri} has no experiment with the id {number}: "
            "mlflow.set_experiment() was called for another store. Call it again. There are "
            f"{', '.join(each.name for each in known) or 'none'}."
        )

    def address(self, experiment: str, run: str) -> Address:
        """Return the run's page, and the command that serves it if no server runs."""
        page = f"/{run_page(experiment, run)}"
        if self._is_served:
            return Address(without_user(self.uri).rstrip("/") + page)
        # A relative path also works for a store in this folder, and is shorter.
        store = masked(self.uri).replace(f"{Path.cwd()}/", "")
        command = shlex.join([_mlflow_command(), "ui", "--backend-store-uri", store])
        return Address(f"http://127.0.0.1:5000{page}", command)

    @property
    def _is_served(self) -> bool:
        return self.uri.startswith(("http://", "https://"))

    @functools.cached_property
    def _experiment_name(self) -> str:
        named = self.experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME")
        number = os.environ.get("MLFLOW_EXPERIMENT_ID")
        if named or not number:
            return named or "seqto"
        with contextlib.suppress(MlflowException):
            return str(MlflowClient(self.uri).get_experiment(number).name)
        raise TrackingError(
            f"MLflow at {self.uri} has no experiment with the id {number}, which "
            "MLFLOW_EXPERIMENT_ID names: unset it, or give tracking.experiment."
        )

    @contextlib.contextmanager
    def _first_contact(self) -> Iterator[None]:
        """Let only one process at a time create a store, and fail fast if it is unreachable."""
        try:
            with (
                self._lock(),
                _environment(_IMPATIENT),
                at_level(logging.WARNING, "alembic", "mlflow"),
                errors_only("urllib3.connectionpool"),
                counted_migrations(),
            ):
                if self._file is not None and not _has_content(self._file):
                    _create(self.uri, self._file)
                yield
        except Exception as error:  # From MLflow, SQLAlchemy or a missing driver.
            mask_error(error)
            if _REFUSED.search(str(error)):
                raise TrackingError(
                    f"MLflow at {self.uri} answers, but lets only known users in: set "
                    "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD (or "
                    "MLFLOW_TRACKING_TOKEN) to what it knows."
                ) from error
            raise TrackingError(
                f"MLflow at {self.uri} does not answer: {cause_of(error)}. "
                "Check tracking.uri or MLFLOW_TRACKING_URI."
            ) from error

    def _lock(self) -> contextlib.AbstractContextManager[object]:
        """Return a lock for creating a store, as two processes would migrate the same tables."""
        return contextlib.nullcontext() if self._file is None else _locked(self._file)

    @functools.cached_property
    def _file(self) -> Path | None:
        """The store's file, if it is one."""
        return file_of(self.uri)


def file_of(uri: str) -> Path | None:
    """Return the file of a store, if it is one."""
    if not uri.startswith("sqlite"):
        return None
    with contextlib.suppress(ArgumentError):
        # Some versions of SQLAlchemy take `%20` for a blank, others do not.
        name = make_url(uri).database or ""
        return None if not name or name.startswith((":", "file:")) else Path(name).resolve()
    return None


def _has_content(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _create(uri: str, path: Path) -> None:
    """Create a store under another name first: nobody can go on with a half-made one."""
    unfinished = path.with_name(f".{path.name}.new")
    parts = [unfinished, unfinished.with_name(f"{unfinished.name}-journal")]
    _remove(parts)
    try:
        new = make_url(uri).set(database=str(unfinished))
        client = MlflowClient(new.render_as_string(hide_password=False))
        client.search_experiments(max_results=1)
        _close(client)
        unfinished.replace(path)
    finally:
        _remove(parts)


def _close(client: MlflowClient) -> None:
    """Close the connections to a client's database, which MLflow keeps open."""
    engine = getattr(getattr(client._tracking_client, "store", None), "engine", None)
    if engine is not None:
        engine.dispose()


def _remove(paths: Iterable[Path]) -> None:
    for each in paths:
        each.unlink(missing_ok=True)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock that all who create this file share, whatever caches they have."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:  # On Windows, where a folder cannot be locked.
        with filelock.FileLock(path.with_name(f".{path.name}.lock")):
            yield
        return
    # The folder itself, so that nothing is left there.
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def store_uri(given: str | None) -> str:
    """Return the given URI, or MLflow's own default."""
    return given or str(mlflow.get_tracking_uri())


def check_exists(uri: str) -> None:
    """Raise if the store's file is missing: MLflow would create an empty one instead."""
    path = file_of(uri)
    if path is not None and not path.exists():
        raise TrackingError(
            f"there is no MLflow store {uri}: go to the folder that has it, or give "
            "--tracking-uri or MLFLOW_TRACKING_URI."
        )


@contextlib.contextmanager
def global_uri(uri: str) -> Iterator[None]:
    """Make MLflow's own functions use this store within the block."""
    # Only an explicitly set URI, not one that MLflow derives from environment or folder.
    by_hand = getattr(_tracking_service, "_tracking_uri", None)
    variable = os.environ.get(_URI_VARIABLE)
    mlflow.set_tracking_uri(uri)
    try:
        yield
    finally:
        # This also sets or unsets the variable.
        mlflow.set_tracking_uri(by_hand)  # type: ignore[arg-type]
        if variable is not None:
            os.environ[_URI_VARIABLE] = variable


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Hide MLflow's progress bars and what it only wants to tell."""
    no_bars = _environment({"MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false"})
    with no_bars, at_level(logging.WARNING, "alembic", "mlflow"):
        yield


@contextlib.contextmanager
def unless_it_exists() -> Iterator[None]:
    """Ignore MLflow's error that something already exists."""
    try:
        yield
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise


@contextlib.contextmanager
def _environment(settings: Mapping[str, str]) -> Iterator[None]:
    """Set these environment variables within the block, unless the user has set them."""
    names = [name for name in settings if name not in os.environ]
    os.environ.update({name: settings[name] for name in names})
    try:
        yield
    finally:
        for name in names:
            del os.environ[name]


def _keep_from_printing(client: MlflowClient) -> None:
    """Keep MLflow from printing the address of each run that ends, with its password."""
    inner: Any = getattr(client, "_tracking_client", None)
    if hasattr(inner, "_log_url"):
        # Not by its environment variable: other threads may be reading the environment.
        inner._log_url = lambda run_id: None


def _mlflow_command() -> str:
    """Return `mlflow`, or its path if the shell would not find this environment's."""
    beside = Path(sys.executable).parent / "mlflow"
    found = shutil.which("mlflow")
    if not beside.exists() or (found and Path(found).samefile(beside)):
        return "mlflow"
    with contextlib.suppress(ValueError):
        return str(beside.relative_to(Path.cwd()))
    return str(beside)


def cause_of(error: Exception) -> str:
    """Return the cause of an error, without the connection details around it."""
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if found := re.search(r"\(Caused by \w+\((.*)\)\)", line):
        line = found[1].strip("\"'").rpartition("): ")[2]
    return textwrap.shorten(line, _LONGEST_CAUSE, placeholder=" ...").rstrip(".")

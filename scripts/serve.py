"""An MLflow server that a team shares: runs in PostgreSQL, artifacts in a folder.

    ./scripts/server                          # its own PostgreSQL, in the folder ./server
    ./scripts/server --host 10.0.0.5 --auth   # reachable by others, who need a password
    ./scripts/server --backend postgresql://host/mlflow --artifacts s3://bucket/path

Without --backend it makes a PostgreSQL of its own in the folder (Debian's package `postgresql`),
which only this machine's user can reach, by a socket. It ends with the server; what was killed is
taken up again by the next start. Artifacts go through the server, so that clients need no access to
where they are.
"""

import argparse
import contextlib
import hashlib
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_DATABASE = "mlflow"
_DRIVER = "postgresql+psycopg2"
"""Named, because the default is another one in newer versions of SQLAlchemy."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until it is told to end; return the exit code."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    given = _parser().parse_args(arguments)
    if str(given.artifacts or "").startswith("s3://") and find_spec("boto3") is None:
        _end("artifacts in S3 need the package boto3 here (not where studies run): install it.")
    folder = given.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    own = contextlib.nullcontext(given.backend) if given.backend else postgres(folder)
    with own as backend:
        environment = _environment(folder, given.auth)
        if given.host not in _LOOPBACK and not given.auth:
            print("server: whoever reaches this address reads and writes all: see --auth.")
        print(f"server: http://{given.host}:{given.port}, its files are in {folder}", flush=True)
        return _served(_command(given, backend, folder), environment)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "scripts/server", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path("server"), help="where its files are")
    parser.add_argument("--backend", help="URI of a database instead of its own PostgreSQL")
    parser.add_argument("--artifacts", help="a folder or URI, by default in the folder")
    parser.add_argument("--host", default="127.0.0.1", help="by default only this machine")
    parser.add_argument("--port", type=int, default=5000)
    parser.add_argument("--workers", type=int, default=2, help="processes that answer requests")
    parser.add_argument("--auth", action="store_true", help="let only known users in")
    parser.add_argument("more", nargs="*", help="options of `mlflow server`, after --")
    return parser


def _command(given: argparse.Namespace, backend: str, folder: Path) -> list[str]:
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri"]
    command.append(backend.replace("postgresql://", f"{_DRIVER}://"))
    command += ["--artifacts-destination", given.artifacts or str(folder / "artifacts")]
    command += ["--host", given.host, "--port", str(given.port), "--workers", str(given.workers)]
    return [*command, *(["--app-name", "basic-auth"] if given.auth else []), *given.more]


def _served(command: Sequence[str], environment: dict[str, str]) -> int:
    # With a group of its own: asked politely, its workers take ten seconds to end.
    process = subprocess.Popen(command, env=environment, start_new_session=True)
    try:
        return process.wait()
    except KeyboardInterrupt:
        return 130
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _environment(folder: Path, auth: bool) -> dict[str, str]:
    held = {
        **os.environ,
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    if not auth:
        return held
    settings = folder / "users.ini"
    if not settings.exists():
        _write_users(settings, folder)
    key = hashlib.sha256(settings.read_bytes()).hexdigest()
    print(f"server: the user admin and its password are in {settings}")
    return {**held, "MLFLOW_AUTH_CONFIG_PATH": str(settings), "MLFLOW_FLASK_SERVER_SECRET_KEY": key}


def _write_users(path: Path, folder: Path) -> None:
    """Write who may come in: one user, with a password that nobody else can read."""
    text = f"""[mlflow]
default_permission = EDIT
database_uri = sqlite:///{folder / "users.db"}
admin_username = admin
admin_password = {os.environ.get("MLFLOW_ADMIN_PASSWORD") or secrets.token_urlsafe(18)}
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
"""
    path.touch(mode=0o600)
    path.write_text(text)


@contextlib.contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """Run a PostgreSQL in this folder, made if it is missing; yield its URI."""
    tools, data = _tools(), folder / "postgres"
    # Names of sockets are short.
    place = hashlib.sha256(str(data).encode()).hexdigest()[:12]
    socket = Path(f"/tmp/seqto-postgres-{place}")
    for each in (data, socket):
        each.mkdir(mode=0o700, exist_ok=True)
        if os.getuid() == 0:
            shutil.chown(each, _user())
    if subprocess.run(_as_user(["test", "-w", data]), cwd="/").returncode:
        _end(f"the user {_user()} cannot write to {data}: give --folder that it reaches.")
    log = data / "log.txt"
    if not (data / "PG_VERSION").exists():
        _run(tools / "initdb", "-D", data, "-U", "mlflow", "-A", "trust", "-E", "UTF8")
    running = subprocess.run(
        _as_user([tools / "pg_ctl", "-D", data, "status"]), capture_output=True
    )
    if running.returncode:
        options = f"-c listen_addresses='' -c unix_socket_directories={socket}"
        _run(tools / "pg_ctl", "-D", data, "-w", "-l", log, "-o", options, "start")
    try:
        asked = "select 1 from pg_database where datname = 'mlflow'"
        at = ("-h", socket, "-U", "mlflow")
        if "1" not in _run(tools / "psql", *at, "-d", "postgres", "-Atc", asked):
            _run(tools / "createdb", *at, _DATABASE)
        yield f"{_DRIVER}://mlflow@/{_DATABASE}?host={socket}"
    finally:
        _run(tools / "pg_ctl", "-D", data, "-m", "fast", "stop")


def _tools() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    beside = shutil.which("initdb")
    if not found and not beside:
        _end("there is no PostgreSQL: install Debian's package postgresql, or give --backend.")
    return found[-1].parent if found else Path(str(beside)).resolve().parent


def _user() -> str:
    try:
        return pwd.getpwnam("postgres").pw_name
    except KeyError:
        _end("PostgreSQL does not run as root, and there is no user postgres: use another user.")


def _as_user(command: Sequence[object]) -> list[str]:
    """Return the command for a user that PostgreSQL accepts: not root."""
    words = list(map(str, command))
    return ["runuser", "-u", _user(), "--", *words] if os.getuid() == 0 else words


def _run(*command: object) -> str:
    # To a file: a pipe would stay open as long as the database runs.
    with open(os.devnull, "rb") as nothing:
        ended = subprocess.run(
            _as_user(command),
            stdin=nothing,
            stdout=subprocess.PIPE if "psql" in str(command[0]) else subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            text=True,
        )
    if ended.returncode:
        _end(f"{Path(str(command[0])).name} ended with {ended.returncode}: see postgres/log.txt.")
    return ended.stdout or ""


def _end(why: str) -> NoReturn:
    sys.exit(f"server: error: {why}")


if __name__ == "__main__":
    sys.exit(main())

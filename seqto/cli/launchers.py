"""Launchers: which of them leave this machine, and what their jobs have to be told."""

import importlib.util
from collections.abc import Sequence
from typing import Any

from seqto.config.words import word
from seqto.errors import ConfigError
from seqto.protocols import Shared, Tracker

_ELSEWHERE = ("RayAWSLauncher", "SlurmLauncher")
_HERE = (None, "local")
"""Addresses with which ray starts on this machine."""


def leaves_machine(launcher: Any) -> bool:
    """Tell whether a launcher's jobs may run on other machines."""
    kind = str(launcher["_target_"]).rpartition(".")[2]
    if kind == "RayLauncher":
        return launcher["ray"]["init"].get("address") not in _HERE
    return kind in _ELSEWHERE


def check_installed(launcher: Any) -> None:
    """Raise if the launcher's package is missing."""
    package = ".".join(str(launcher["_target_"]).split(".")[:2])
    try:
        found = importlib.util.find_spec(package)
    except ModuleNotFoundError:
        found = None
    if found is None:
        extra = package.removeprefix("hydra_plugins.hydra_").removesuffix("_launcher")
        raise ConfigError(
            f"this launcher is not installed: pip install 'seqto[{extra}]' (in a checkout "
            f"'.[{extra}]')."
        )


def check_store(launcher: Any, tracker: Tracker) -> None:
    """Raise if jobs would run where they cannot reach the store."""
    if not leaves_machine(launcher) or not isinstance(tracker, Shared) or tracker.is_shared:
        return
    raise ConfigError(
        f"this launcher runs jobs on other machines, which cannot write to {tracker.store}: "
        "start a server that they reach, such as `mlflow server --host <address>`, and give "
        "tracking.uri=http://<address>:5000."
    )


def where_to_record(launcher: Any, tracker: Tracker) -> Sequence[str]:
    """Return the words that a job needs besides the study's: nothing of this environment is there.

    Launchers that keep this environment get none, because some write the words into files.
    """
    is_ray = str(launcher["_target_"]).endswith(".RayLauncher")
    return [word("tracking.uri", tracker.store)] if is_ray and isinstance(tracker, Shared) else []

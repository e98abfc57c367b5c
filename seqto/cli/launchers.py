"""Launchers: which of them leave this machine, and what their jobs have to be told."""

import importlib.util
from typing import Any

from seqto.errors import ConfigError
from seqto.protocols import Shared, Tracker

_ELSEWHERE = ("RayAWSLauncher", "SlurmLauncher")
_HERE = (None, "local")
"""Addresses with which ray starts on this machine."""


def leaves_machine(launcher: Any) -> bool:
    """Tell whether a launcher's jobs may run on other machines."""
    kind = str(launcher["_target_"]).rpartition(".")[2]
    if kind in ("SeqtoRayLauncher", "RayLauncher"):
        return launcher["ray"]["init"].get("address") not in _HERE
    return kind in _ELSEWHERE


def check_installed(launcher: Any) -> None:
    """Raise if the launcher's package is missing."""
    package = "ray" if is_ray(launcher) else ".".join(str(launcher["_target_"]).split(".")[:2])
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


def is_ray(launcher: Any) -> bool:
    """Tell whether it is seqto's own launcher for ray, which needs no jobs of Hydra."""
    return str(launcher["_target_"]).endswith(".SeqtoRayLauncher")

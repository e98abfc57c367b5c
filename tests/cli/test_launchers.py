"""Launchers that leave this machine need a store that other machines reach."""

from typing import Any

import pytest

from seqto.cli.launchers import check_installed, check_store, leaves_machine
from seqto.errors import ConfigError
from seqto.tracking.memory import MemoryTracker
from seqto.tracking.mlflow import MlflowTracker

SERVER = "http://127.0.0.1:5000"


def ray(address: str | None) -> dict[str, Any]:
    target = "hydra_plugins.seqto_sweeper.ray_launcher.SeqtoRayLauncher"
    return {"_target_": target, "ray": {"init": {"address": address}}}


def other(name: str) -> dict[str, Any]:
    return {"_target_": f"hydra_plugins.some_launcher.launcher.{name}"}


@pytest.mark.parametrize(
    ("launcher", "leaves"),
    [
        (ray(None), False),
        (ray("local"), False),
        (ray("auto"), True),
        (ray("ray://host:10001"), True),
        (other("BasicLauncher"), False),
        (other("JoblibLauncher"), False),
        (other("LocalLauncher"), False),
        (other("SlurmLauncher"), True),
    ],
)
def test_store_in_a_file_is_refused_where_jobs_leave_the_machine(
    launcher: dict[str, Any], leaves: bool
) -> None:
    assert leaves_machine(launcher) == leaves
    for uri in (SERVER, "postgresql://host/db"):
        check_store(launcher, MlflowTracker(uri=uri))
    check_store(launcher, MemoryTracker())
    for uri in ("sqlite:///mlflow.db", "file:///runs", "./mlruns"):
        if leaves:
            with pytest.raises(ConfigError, match=r"cannot write to .*tracking\.uri=http"):
                check_store(launcher, MlflowTracker(uri=uri))
        else:
            check_store(launcher, MlflowTracker(uri=uri))


def test_launcher_that_is_missing_names_its_extra() -> None:
    check_installed({"_target_": "hydra._internal.core_plugins.basic_launcher.BasicLauncher"})
    with pytest.raises(ConfigError, match=r"not installed: pip install 'seqto\[none\]'"):
        check_installed({"_target_": "hydra_plugins.hydra_none_launcher.x.Launcher"})

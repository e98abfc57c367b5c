"""Composes a config from overrides, and registers the plugin that Hydra needs for it."""

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.version import VersionBase
from omegaconf import DictConfig, OmegaConf

from seqto.config.paths import CONF, PLUGINS
from seqto.config.shapes import check_shapes
from seqto.config.words import word
from seqto.secrets import remember_secrets


def composed(overrides: Sequence[str], folder: Path | None = None) -> DictConfig:
    """Return the config that these overrides describe; a user's folder may have more choices."""
    register_sweeper()
    if folder is not None:
        overrides = [*overrides, word("hydra.searchpath", [f"file://{folder.resolve()}"])]
    with _apart(), initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("config", list(overrides))
    remember_secrets_of(config)
    check_shapes(config)
    return config


@contextlib.contextmanager
def _apart() -> Iterator[None]:
    """Put Hydra aside that the calling program may use itself: there can only be one at a time."""
    place, base = GlobalHydra.instance(), VersionBase.instance()
    held, version = place.hydra, base.getbase()
    place.clear()
    try:
        yield
    finally:
        place.hydra = held
        base.version_base = version


def remember_secrets_of(config: DictConfig) -> None:
    """Mask the secrets of a config and of the environment in every text from now on."""
    remember_secrets([OmegaConf.to_container(config, resolve=False), dict(os.environ)])


def register_sweeper() -> None:
    """Register sweeper and launcher, because Hydra finds them by itself only in a wheel."""
    try:
        from hydra_plugins.seqto_sweeper.sweeper import SeqtoSweeper
    except ModuleNotFoundError:
        sys.path.append(str(PLUGINS))
        from hydra_plugins.seqto_sweeper.sweeper import SeqtoSweeper
    from hydra_plugins.seqto_sweeper.ray_launcher import SeqtoRayLauncher

    for plugin in (SeqtoSweeper, SeqtoRayLauncher):
        Plugins.instance().register(plugin)

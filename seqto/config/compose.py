"""Composes a config from overrides, and registers the plugin that Hydra needs for it."""

import contextlib
import sys
from collections.abc import Iterator, Sequence

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.version import VersionBase
from omegaconf import DictConfig

from seqto.config.paths import CONF, PLUGINS
from seqto.config.shapes import check_shapes


def composed(overrides: Sequence[str]) -> DictConfig:
    """Return the config that these overrides describe."""
    register_sweeper()
    with _apart(), initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("config", list(overrides))
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


def register_sweeper() -> None:
    """Register the sweeper, because Hydra finds it by itself only in a wheel."""
    try:
        from hydra_plugins.seqto_sweeper.sweeper import SeqtoSweeper
    except ModuleNotFoundError:
        sys.path.append(str(PLUGINS))
        from hydra_plugins.seqto_sweeper.sweeper import SeqtoSweeper
    Plugins.instance().register(SeqtoSweeper)

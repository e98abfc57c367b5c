"""The config of a command other than a study, from the same words."""

from collections.abc import Sequence

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from seqto.cli.entry import register_sweeper
from seqto.cli.paths import CONF


def composed(overrides: Sequence[str]) -> DictConfig:
    """Return the config that these overrides describe."""
    register_sweeper()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("config", list(overrides))

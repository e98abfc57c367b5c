"""The config of a command other than a study, from the same words."""

from collections.abc import Sequence

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from seqto.cli.entry import register_sweeper
from seqto.cli.paths import CONF
from seqto.cli.shapes import check_shapes


def composed(overrides: Sequence[str]) -> DictConfig:
    """Return the config that these overrides describe."""
    register_sweeper()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("config", list(overrides))
    check_shapes(config)
    return config

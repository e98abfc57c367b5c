"""Checks which config keys are lists, and which have subkeys."""

from omegaconf import DictConfig, ListConfig, OmegaConf

from seqto.config.paths import CONF
from seqto.errors import ConfigError

_LISTS = {"precisions": ("int8", "float32")}
"""Lists that are null by default, each with an example."""


def check_shapes(config: DictConfig) -> None:
    """Raise if a list or a group of keys was overridden by something else."""
    defaults = OmegaConf.load(CONF / "config.yaml")
    assert isinstance(defaults, DictConfig)
    for name in defaults:
        if name not in ("defaults", "hydra"):
            _check(str(name), config.get(name), defaults._get_node(name))


def _check(name: str, given: object, default: object) -> None:
    example = _LISTS.get(name, default)
    if name in _LISTS and given is None:
        return
    if isinstance(example, ListConfig | tuple) and not _is_names(given):
        names = ",".join(map(str, example))
        raise ConfigError(f"{name}={given} has to be a list of names, such as '{name}=[{names}]'.")
    if isinstance(default, DictConfig) and not isinstance(given, DictConfig):
        keys = ", ".join(f"{name}.{key}=..." for key in map(str, default))
        raise ConfigError(f"{name}={given} cannot be set: {name} has keys, set one of {keys}")


def _is_names(given: object) -> bool:
    return isinstance(given, ListConfig) and all(isinstance(each, str) for each in given)

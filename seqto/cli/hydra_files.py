"""The files that Hydra writes beside a job's results, written here instead: without secrets."""

from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, ListConfig, OmegaConf

from seqto.secrets import masked_values


def folder_name() -> str:
    """Return the name of their folder: Hydra's own, unless `hydra.output_subdir` is given."""
    return str(HydraConfig.get().output_subdir or ".hydra")


def write_hydra_files(config: DictConfig) -> None:
    """Write the config of this job, Hydra's own and the overrides, as Hydra would."""
    hydra_config: Any = HydraConfig.instance().cfg
    folder = Path(hydra_config.hydra.runtime.output_dir) / folder_name()
    save_masked(config, folder / "config.yaml")
    save_masked(OmegaConf.masked_copy(hydra_config, "hydra"), folder / "hydra.yaml")
    save_masked(hydra_config.hydra.overrides.task, folder / "overrides.yaml")


def save_masked(config: DictConfig | ListConfig, path: Path) -> None:
    """Write a config to a YAML file, without the secrets in it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = masked_values(OmegaConf.to_container(config, resolve=False))
    OmegaConf.save(OmegaConf.create(plain), path)

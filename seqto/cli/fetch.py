"""Models that have to be fetched, before anything else is done for their studies."""

from hydra.utils import instantiate
from omegaconf import DictConfig


def fetch_model(config: DictConfig) -> None:
    """Fetch the model where its source has to; a local or embedded one is there already."""
    source = instantiate(config.model, _convert_="all")
    fetch = getattr(source, "fetch", None)
    if fetch is not None:
        fetch()

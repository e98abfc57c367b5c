"""Values that a user has to give: looked for before anything heavy is imported."""

from omegaconf import DictConfig, OmegaConf

_GROUPS = ("model", "dataset")
"""The groups whose choices have such values."""


def check_given(config: DictConfig, *groups: str) -> None:
    """Raise MissingMandatoryValue if a value that a user has to give is missing."""
    for group in groups or _GROUPS:
        chosen = config.get(group)
        # A group that was overridden by a value is told of later.
        for key in chosen if isinstance(chosen, DictConfig) else ():
            if OmegaConf.is_missing(chosen, key):
                _ = chosen[key]  # Raises, with the key's full name.

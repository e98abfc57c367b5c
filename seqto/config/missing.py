"""Values and files that a user has to give: looked for before anything heavy is imported."""

from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from seqto.errors import DatasetError, ModelError, SeqtoError

_GROUPS = ("model", "dataset")
"""The groups whose choices have such values."""

_ERRORS: dict[str, type[SeqtoError]] = {"model": ModelError, "dataset": DatasetError}

_FILES = {
    "seqto.models.local.LocalModel": {"path": "check the path of the model"},
    "seqto.datasets.images.ImageFolder": {"path": "set dataset.path to a folder of images"},
    "seqto.datasets.arrays.ArrayFile": {"path": "set dataset.path to a .npz file"},
    "seqto.datasets.text.TextLines": {
        "path": "set dataset.path to a file with one entry per line",
        "tokenizer": "set dataset.tokenizer to a tokenizer.json",
    },
}
"""The keys that name files or folders of this machine, by class, and what to do about them."""


def check_given(config: DictConfig, *groups: str) -> None:
    """Raise MissingMandatoryValue if a value that a user has to give is missing."""
    for group in groups or _GROUPS:
        chosen = config.get(group)
        # A group that was overridden by a value is told of later.
        for key in chosen if isinstance(chosen, DictConfig) else ():
            if OmegaConf.is_missing(chosen, key):
                _ = chosen[key]  # Raises, with the key's full name.


def check_files(config: DictConfig, *groups: str) -> None:
    """Raise if a file or folder that the config names is not there, before heavy imports."""
    for group in groups or _GROUPS:
        error = _ERRORS[group]
        chosen = config.get(group)
        target = str(chosen.get("_target_")) if isinstance(chosen, DictConfig) else ""
        for key, remedy in _FILES.get(target, {}).items():
            path = Path(str(chosen[key])).expanduser()
            if not path.exists():
                raise error(f"{path} does not exist: {remedy}.")

"""Every config composes, is instantiated, and explains each of its keys."""

import itertools
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from seqto.cli.entry import register_sweeper
from seqto.cli.paths import CONF

CHOICES = sorted(
    (path.parent.name, path.stem) for path in CONF.glob("*/*.yaml") if path.parent.name != "hydra"
)
# What a user has to say for a choice to be complete.
NEEDED = {
    "model=local": ["model.path=my.onnx"],
    "model=registry": ["model.uri=models:/name@alias"],
    "model=hub": ["model.repo=owner/name", "model.file=my.onnx"],
    "dataset=images": ["dataset.path=photos"],
    "dataset=npz": ["dataset.path=samples.npz"],
    "dataset=hf": ["dataset.path=owner/name"],
}


@pytest.mark.parametrize(("group", "choice"), CHOICES, ids="=".join)
def test_every_choice_composes_and_instantiates(group: str, choice: str) -> None:
    register_sweeper()
    override = f"{group}={choice}"
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("config", [override, *NEEDED.get(override, [])])
    made = instantiate(config[group], _convert_="all")
    assert type(made).__module__.startswith("seqto.")


@pytest.mark.parametrize("path", sorted(CONF.rglob("*.yaml")), ids=lambda path: path.stem)
def test_every_key_has_a_comment(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert lines[0].startswith("# ")
    if "hydra" in path.parts:
        return
    for line in itertools.takewhile(lambda line: line != "hydra:", lines):
        key = line.strip().partition(":")[0]
        plain = line.lstrip().startswith(("#", "-")) or not line.strip()
        if not plain and not line.rstrip().endswith(":") and key not in ("_target_", "name"):
            assert "  #" in line or " # " in line, f"{path.name}: {key} says not what it is for"

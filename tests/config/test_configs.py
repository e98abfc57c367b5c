"""Every config composes, is instantiated, and explains each of its keys."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from config_choices import CHOICES, HANDED_OVER, NEEDED
from hydra import compose, initialize_config_dir

from seqto.config.build import build_part
from seqto.config.compose import register_sweeper
from seqto.config.paths import CONF


@pytest.mark.parametrize(("group", "choice"), CHOICES, ids="=".join)
def test_every_choice_composes_and_instantiates(group: str, choice: str) -> None:
    register_sweeper()
    override = f"{group}={choice}"
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("config", [override, *NEEDED.get(override, [])])
    made = build_part(config, group, **HANDED_OVER.get(override, {}))
    # The metric of the task is none of its own.
    assert made is None if override == "metric=task" else type(made).__module__.startswith("seqto.")


@pytest.mark.parametrize(
    "path", sorted(CONF.rglob("*.yaml")), ids=lambda path: str(path.relative_to(CONF))
)
def test_every_key_has_a_comment(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert lines[0].startswith("# ")
    assert not list(uncommented(lines)), f"{path.name}: these keys do not say what they are for"


def uncommented(lines: list[str]) -> Iterator[str]:
    """Yield the lines that give a key a value, with no comment there or right above."""
    above = ""
    for line in lines:
        words = line.strip()
        plain = not words or words.startswith(("#", "- _self_")) or words.endswith(":")
        if not plain and " # " not in line and not above.startswith("#"):
            yield line
        above = words


def test_a_key_without_a_comment_is_seen() -> None:
    lines = ["# File", "_target_: a.B", "key: 1", "more: 2  # said", "part:", "  inner: 3"]
    assert list(uncommented(lines)) == ["key: 1", "  inner: 3"]

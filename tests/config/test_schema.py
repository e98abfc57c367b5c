"""conf/ is the schema: a wrong type or range of any key is told with the key and the value."""

import copy
import functools
from pathlib import Path
from typing import Any

import pytest
import yaml
from config_choices import CHOICES, HANDED_OVER, NEEDED
from omegaconf import DictConfig, OmegaConf

from seqto.cli.candidate_command import chosen_candidate, wants_unpacked
from seqto.cli.manual import Key, described_keys
from seqto.config.build import Context, build_context, build_part, build_reading, build_settings
from seqto.config.complaints import complain, exit_code
from seqto.config.compose import composed
from seqto.config.paths import CONF
from seqto.config.shapes import check_shapes
from seqto.promotion import Rules
from seqto.tracking.memory import MemoryTracker

# What users call otherwise than by its place: it is taken over from elsewhere.
TOLD_AS = {
    "dataset.preprocess": "preprocess.",
    "sensitivity.precisions": "precisions",
    "quantization.options": "quantization does not take wrong=1",
}
# Any number is right for these: any seed, any threshold of logits, classes by any number.
ANY_NUMBER = {
    "search.seed",
    "task.threshold",
    "task.background",
    "task.axis",
    "task.ignore",
}
# Set by a study for its jobs, or known to the tracker alone.
ELSEWHERE = {"study.run", "study.assignments", "candidate.from_run"}
NAMING = {"model.batch_axes", "dataset.constants", "candidate.precisions"}


def keys_of(path: Path) -> list[Key]:
    """Return the keys of a config that are no part of another key."""
    return [key for key in described_keys(path) if key.name != "_target_" and "." not in key.name]


GROUP_KEYS = [
    (f"{group}={choice}", f"{group}.{key.name}", key.value)
    for group, choice in CHOICES
    for key in keys_of(CONF / group / f"{choice}.yaml")
]
OWN_KEYS = [
    key.name
    for key in described_keys(CONF / "config.yaml")
    if not key.name.startswith("hydra.") and key.name not in ELSEWHERE
]


@functools.cache
def complete(choice: str) -> DictConfig:
    """Return the config of a choice; composing it again for each key would take minutes."""
    return composed([choice, *NEEDED.get(choice, [])] if choice else [])


def changed(choice: str, key: str, value: Any) -> DictConfig:
    """Return the config with one key changed, as an override changes it."""
    config = copy.deepcopy(complete(choice))
    OmegaConf.update(config, key, value, merge=False, force_add=True)
    return config


def complaint_about(choice: str, key: str, value: Any) -> str:
    """Return the line about a part with this value; an empty one where it is accepted."""
    group = choice.partition("=")[0]
    try:
        config = changed(choice, key, value)
        build_reading(config)
        build_part(config, group, **HANDED_OVER.get(choice, {}))
    except Exception as error:
        assert exit_code(error) == 1
        return complain(error)
    return ""


@pytest.mark.parametrize(("choice", "key"), [(each[0], each[1]) for each in GROUP_KEYS])
def test_a_wrong_type_is_told(choice: str, key: str) -> None:
    # Keys that hold keys themselves take anything but a list of lists.
    lines = (complaint_about(choice, key, wrong) for wrong in ({"wrong": 1}, [[1]]))
    line = next(filter(None, lines), "")
    assert TOLD_AS.get(key, f"{key}=") in line or f"{key}." in line, line or "accepted"
    assert "unexpected" not in line and "\n" not in line
    assert "wrong" in line or "[1]" in line


def wrong_value(default: Any) -> str | int | None:
    """Return what is out of the range of a key with this default, if it has one."""
    if isinstance(default, bool):
        return "maybe"
    return -1000000000 if default is None or isinstance(default, int | float) else None


RANGED = [
    (choice, key, wrong)
    for choice, key, default in GROUP_KEYS
    if (wrong := wrong_value(yaml.safe_load(default))) and key not in ANY_NUMBER
]


@pytest.mark.parametrize(("choice", "key", "wrong"), RANGED)
def test_a_value_out_of_range_is_told(choice: str, key: str, wrong: str | int) -> None:
    line = complaint_about(choice, key, wrong)
    assert key in line and str(wrong) in line, line or "accepted"
    assert "unexpected" not in line


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Context:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEQTO_CACHE", str(tmp_path_factory.mktemp("cache")))
        return build_context(composed([]), {"tracking": MemoryTracker()})


@pytest.mark.parametrize("wrong", [{"wrong": 1}, -1000000000], ids=str)
@pytest.mark.parametrize("key", OWN_KEYS)
def test_a_wrong_value_of_a_key_without_a_group_is_told(
    key: str, wrong: Any, context: Context
) -> None:
    if wrong != -1000000000 and key in NAMING:
        pytest.skip("names, which only the model can refuse")
    with pytest.raises(Exception) as caught:
        config = changed("", key, wrong)
        check_shapes(config)
        settings = build_settings(config, 1)
        Rules(objectives=settings.objectives, tolerance=config.promote.tolerance)
        build_reading(config)
        chosen_candidate(config, context)
        wants_unpacked(config)
    line = complain(caught.value)
    assert key in line and "unexpected" not in line, line
    assert "wrong" in line or str(wrong) in line


def test_all_groups_have_keys_to_try() -> None:
    groups = {choice.partition("=")[0] for choice, _, _ in GROUP_KEYS}
    assert groups == {group for group, _ in CHOICES}
    assert len(GROUP_KEYS) > 300 and len(RANGED) > 150 and len(OWN_KEYS) > 20

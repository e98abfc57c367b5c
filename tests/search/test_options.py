"""What each layer may become."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from suite_trackers import PLAN

from seqto.errors import ConfigError
from seqto.protocols import Tracker
from seqto.search.options import Menu, units
from seqto.tracking.memory import MemoryTracker
from seqto.tracking.mlflow import MlflowTracker
from seqto.types import Layer, LayerScore


def score(
    name: str, costs: dict[str, float], sizes: dict[str, int], group: str = "", weight: str = ""
) -> LayerScore:
    layer = Layer(name, "Conv", 100, group=group, weight=weight)
    return LayerScore(layer, 1.0, costs=costs, sizes=sizes)


SIZES = {"int4": 10, "int8": 20, "float16": 50, "float32": 100}

MENU = Menu(
    [
        score("b", {"int4": 5.0, "int8": 2.0, "float16": 0.5}, SIZES),
        # Small: what surrounds its integers takes more than its weights.
        score(
            "a",
            {"int4": 3.0, "int8": 1.0, "float16": 0.25},
            {"int4": 40, "int8": 45, "float16": 8, "float32": 8},
        ),
    ]
)


def test_bytes_and_harm_add_up_over_layers() -> None:
    choice = [MENU.precisions.index("int8"), MENU.precisions.index("float16")]
    assert MENU.bytes(choice) == 20 + 8
    assert MENU.harm(choice) == 2.0 + 0.25
    assert dict(MENU.candidate(choice).precisions) == {"b": "int8", "a": "float16"}


def test_the_smallest_is_found_layer_by_layer_and_of_equal_ones_the_least_harmful() -> None:
    assert dict(MENU.candidate(MENU.smallest()).precisions) == {"b": "int4", "a": "float32"}


def test_unchanged_is_float_and_does_no_harm() -> None:
    candidate = MENU.candidate(MENU.unchanged())
    assert set(dict(candidate.precisions).values()) == {"float32"}
    assert MENU.harm(MENU.unchanged()) == 0
    assert MENU.bytes(MENU.unchanged()) == 108


def test_float_never_does_harm_whatever_was_predicted() -> None:
    menu = Menu([score("a", {"int8": 1.0, "float32": 7.0}, {"int8": 1, "float32": 4})])
    assert menu.harm(menu.unchanged()) == 0


def test_a_precision_without_a_predicted_cost_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"float16.*sensitivity=divergence.*leave float16 out"):
        Menu([score("a", {"int8": 1.0}, {"int8": 1, "float16": 2, "float32": 4})])


# Layers that have to have the same precision.

COSTS = {"int4": 4.0, "int8": 1.0, "float16": 0.5}

TIED = [
    score("c", COSTS, SIZES, group="b", weight="w_c"),
    score("a", COSTS, SIZES, weight="w_a"),
    score("b", {"int4": 2.0, "int8": 0.25, "float16": 0.125}, SIZES, group="b", weight="w_b"),
]


def test_a_unit_is_a_row_where_its_most_hurt_layer_is() -> None:
    assert [[each.layer.name for each in unit] for unit in units(TIED)] == [["c", "b"], ["a"]]
    assert Menu(TIED).costs.shape == (2, 4)


def test_layers_of_a_group_get_the_same_precision() -> None:
    menu = Menu(TIED)
    choice = [menu.precisions.index("int4"), menu.precisions.index("float16")]
    assert dict(menu.candidate(choice).precisions) == {"a": "float16", "b": "int4", "c": "int4"}


def test_bytes_and_harm_add_up_over_the_layers_of_a_group() -> None:
    menu = Menu(TIED)
    choice = [menu.precisions.index("int8"), menu.precisions.index("float16")]
    assert menu.bytes(choice) == 20 + 20 + 50
    assert menu.harm(choice) == 1.0 + 0.25 + 0.5
    assert menu.bytes(menu.unchanged()) == 300


def test_a_weight_that_two_layers_read_is_counted_once() -> None:
    menu = Menu([score(name, COSTS, SIZES, group="a", weight="w") for name in ("a", "b")])
    assert menu.bytes(menu.unchanged()) == 100
    assert menu.harm([menu.precisions.index("int8")]) == 2.0


@pytest.mark.parametrize("kind", ["memory", "mlflow"])
def test_a_study_that_is_read_back_has_the_same_menu(
    kind: str, migrated_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(migrated_store, tmp_path / "mlflow.db")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    tracker: Tracker = MlflowTracker(uri=uri) if kind == "mlflow" else MemoryTracker()
    study = tracker.open_study(PLAN, False)
    ranking = [*TIED, *(score(name, COSTS, SIZES, group="d", weight="w") for name in "de")]
    tracker.log_analysis(study, {}, ranking)
    scores = tracker.read_study(study).scores
    assert [each.layer.group for each in scores] == ["b", "", "b", "d", "d"]
    assert scores == tuple(ranking), "the group is no detail"
    before, after = Menu(ranking), Menu(scores)
    assert after.layers == before.layers
    np.testing.assert_array_equal(after.sizes, before.sizes)

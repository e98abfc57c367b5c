"""What each layer may become."""

import pytest

from seqto.errors import ConfigError
from seqto.search.options import Menu
from seqto.types import Layer, LayerScore


def score(name: str, costs: dict[str, float], sizes: dict[str, int]) -> LayerScore:
    return LayerScore(Layer(name, "Conv", 100), 1.0, costs=costs, sizes=sizes)


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

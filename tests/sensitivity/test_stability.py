"""Whether another draw of the samples would rank the layers alike."""

import pytest

from seqto.sensitivity.stability import stability
from seqto.types import Layer, LayerScore


def scores(first: list[float], second: list[float]) -> list[LayerScore]:
    """Return scores with these halves."""
    return [
        LayerScore(
            Layer(f"layer{index}", "Conv", 4), 0.0, {"first_half": one, "second_half": other}
        )
        for index, (one, other) in enumerate(zip(first, second, strict=True))
    ]


@pytest.mark.parametrize(
    ("first", "second", "wanted"),
    [
        ([1, 2, 3], [10, 200, 3000], 1.0),
        ([1, 2, 3], [3, 2, 1], -1.0),
        ([1, 2, 3, 4], [1, 2, 4, 3], 0.8),
        ([1, 2, 2, 3], [1, 3, 2, 4], 0.9486833),
    ],
)
def test_it_is_spearmans_correlation(
    first: list[float], second: list[float], wanted: float
) -> None:
    assert stability(scores(first, second)) == pytest.approx(wanted)


def test_there_is_none_without_halves() -> None:
    assert stability([]) is None
    assert stability([LayerScore(Layer("one", "Conv", 4), 1.0)] * 3) is None
    assert stability([*scores([1, 2], [1, 2]), LayerScore(Layer("one", "Conv", 4), 1.0)]) is None


def test_layers_without_halves_share_the_last_place() -> None:
    unknown = LayerScore(Layer("one", "Conv", 4), 1.0)
    assert stability([*scores([1, 2, 3], [1, 3, 2]), unknown]) == pytest.approx(0.8)


def test_there_is_none_without_a_ranking() -> None:
    assert stability(scores([1], [1])) is None
    assert stability(scores([1, 1, 1], [1, 2, 3])) is None

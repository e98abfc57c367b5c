"""QuantuneV2's strategy."""

from typing import Any

import pytest
from pydantic import ValidationError
from suite_searches import GROUPED, RANKING, SearchSuite, candidates

from seqto.search.oneshot import OneShotSearch
from seqto.types import Layer, LayerScore


class TestOneShot(SearchSuite):
    """The conformance suite."""

    @pytest.fixture
    def search(self) -> OneShotSearch:
        """Return one that leaves some layers in float."""
        return OneShotSearch(float_share=0.5)


def layer(name: str, weight_bytes: int, **costs: float) -> LayerScore:
    parts = {"int4": 8, "int8": 4, "float16": 2, "float32": 1}
    sizes = {precision: weight_bytes // part for precision, part in parts.items()}
    return LayerScore(Layer(name, "Conv", weight_bytes), 1.0, costs=costs, sizes=sizes)


MIXED = [
    layer("worst", 800, int4=90.0, int8=9.0, float16=0.0),
    layer("large", 8000, int4=50.0, int8=5.0, float16=0.0),
    layer("small", 400, int4=40.0, int8=4.0, float16=8.0),
    layer("calm", 4000, int4=3.0, int8=0.3, float16=0.0),
]
"""The most hurt first."""


def decision(search: OneShotSearch, ranking: list[LayerScore]) -> dict[str, str]:
    (_, chosen, _) = candidates(search, ranking=ranking)
    return dict(chosen.precisions)


def test_the_top_of_the_list_is_left_in_float() -> None:
    full, chosen, unchanged = candidates(OneShotSearch(float_share=0.35), ranking=RANKING)
    assert full.excluded == () and len(unchanged.excluded) == 6
    # Two of six layers of the same size are a third.
    assert set(chosen.excluded) == {"f", "b"}


def test_layers_that_run_as_one_are_left_together() -> None:
    _, chosen, _ = candidates(OneShotSearch(float_share=0.5), ranking=GROUPED)
    assert set(chosen.excluded) == {"f", "b", "e"}
    # Without room for both of a pair, the next one that fits is taken.
    _, chosen, _ = candidates(OneShotSearch(float_share=0.34), ranking=GROUPED)
    assert set(chosen.excluded) == {"f", "d"}


def test_results_do_not_change_the_decision() -> None:
    search = OneShotSearch(float_share=0.5)
    assert candidates(search, [0.0] * 3) == candidates(search, [1.0] * 3)
    assert candidates(search, [None] * 3) == candidates(search)


def test_the_worst_quantized_layer_is_the_limit_for_all_others() -> None:
    # 10 % are 1320 bytes: `worst` and `small`, but not `large`, whose harm of 5 is the limit.
    wanted = {"worst": "float16", "large": "int8", "small": "float32", "calm": "int4"}
    assert decision(OneShotSearch(float_share=0.1), MIXED) == wanted
    # With less room the limit is higher; an int4 layer stays below it nevertheless.
    wanted = {"worst": "int8", "large": "int8", "small": "float32", "calm": "int4"}
    assert decision(OneShotSearch(float_share=0.04), MIXED) == wanted


def test_what_is_quantized_is_not_in_float_even_if_that_is_smaller() -> None:
    sizes = {"int8": 450, "float16": 350, "float32": 400}
    tiny = LayerScore(Layer("tiny", "Conv", 400), 0.1, {}, {"int8": 0.1, "float16": 0.0}, sizes)
    sizes = {"int8": 200, "float16": 400, "float32": 800}
    hurt = LayerScore(Layer("hurt", "Conv", 800), 1.0, {}, {"int8": 9.0, "float16": 0.0}, sizes)
    chosen = decision(OneShotSearch(float_share=0.7), [hurt, tiny])
    assert chosen == {"hurt": "float16", "tiny": "int8"}
    assert decision(OneShotSearch(float_share=1.0), [hurt, tiny])["tiny"] == "float16"


@pytest.mark.parametrize(("share", "excluded"), [(0.0, 0), (1.0, 6)])
def test_nothing_or_all_may_be_left(share: float, excluded: int) -> None:
    tried = candidates(OneShotSearch(float_share=share))
    assert [len(each.excluded) for each in tried] == [0, 6]
    assert tried[excluded // 6].excluded == tried[-1].excluded[:excluded]


def test_without_int8_the_smallest_precision_is_the_base() -> None:
    ranking = [
        LayerScore(each.layer, each.score, costs={"int4": 1.0}, sizes={"int4": 12, "float32": 100})
        for each in RANKING
    ]
    full, chosen, _ = candidates(OneShotSearch(float_share=0.2), ranking=ranking)
    assert {precision for _, precision in full.precisions} == {"int4"}
    assert chosen.excluded == ("f",)


@pytest.mark.parametrize("wrong", [{"float_share": 1.5}, {"float_share": -0.1}, {"share": 0.1}])
def test_wrong_settings_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        OneShotSearch(**wrong)

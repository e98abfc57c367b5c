"""How much is left in float."""

import pytest
from studies import trial

from seqto.measuring.float_share import float_share, with_float_shares
from seqto.types import Candidate, Layer

LAYERS = [Layer("a", "Conv", 100), Layer("b", "Conv", 300), Layer("c", "Gemm", 600)]


@pytest.mark.parametrize(
    ("precisions", "share"),
    [
        ({"a": "int8", "b": "int8", "c": "int4"}, 0.0),
        ({"a": "float32", "b": "int8", "c": "int8"}, 0.1),
        ({"a": "float32", "b": "float16", "c": "int16"}, 0.4),
        ({"a": "float32", "b": "float32", "c": "float32"}, 1.0),
    ],
)
def test_share_is_that_of_the_bytes_in_float(precisions: dict[str, str], share: float) -> None:
    assert float_share(Candidate.of(precisions), LAYERS) == pytest.approx(share)


def test_a_shared_weight_counts_once() -> None:
    tied = [Layer("a", "Gather", 100, weight="w"), Layer("b", "MatMul", 100, weight="w"), LAYERS[2]]
    left = Candidate.of({"a": "float32", "b": "float32", "c": "int8"})
    assert float_share(left, tied) == pytest.approx(1 / 7)


def test_a_model_without_weights_has_no_share() -> None:
    assert float_share(Candidate(()), []) == 0.0


def test_trials_get_their_share() -> None:
    (found,) = with_float_shares([trial(0, excluded=["b"], accuracy_loss=0.1)], LAYERS)
    assert found.metrics == {"accuracy_loss": 0.1, "float_share": 0.3}

"""The errors a user may meet."""

import re

import pytest

from seqto import errors
from seqto.errors import LayerError, ModelError, SeqtoError, nearest

NAMES = ["/stem/Conv", "/blocks.0/Conv", "/blocks.1/Conv", "/classifier/fc/Gemm"]


def test_all_errors_have_one_base() -> None:
    kinds = [each for name, each in vars(errors).items() if name.endswith("Error")]
    assert len(kinds) > 5
    assert all(issubclass(kind, SeqtoError) for kind in kinds)


def test_the_tree_in_the_docstring_is_the_real_one() -> None:
    drawn = re.findall(r"[─ ](\w+Error) ", errors.__doc__ or "")
    defined = [name for name in vars(errors) if name.endswith("Error") and name != "SeqtoError"]
    assert sorted(drawn) == sorted(defined)
    assert issubclass(LayerError, ModelError)


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("/stem/Cnov", " (did you mean '/stem/Conv'"),
        # A part of a name, and in other letters.
        ("fc", " (did you mean '/classifier/fc/Gemm'?)"),
        ("GEMM", " (did you mean '/classifier/fc/Gemm'?)"),
        ("zzz", ""),
    ],
)
def test_the_nearest_names_are_given(typed: str, hint: str) -> None:
    assert nearest(typed, NAMES).startswith(hint)
    assert bool(nearest(typed, NAMES)) == bool(hint)


def test_at_most_three_names_are_given() -> None:
    assert nearest("conv", [f"conv{index}" for index in range(10)]).count("conv") == 3


def test_the_best_name_comes_first_and_once() -> None:
    assert nearest("/blocks.1/Con", NAMES).startswith(" (did you mean '/blocks.1/Conv' or ")
    assert nearest("/blocks.1/Con", NAMES).count("'/blocks.1/Conv'") == 1


def test_layer_error_says_who_asked_and_what_there_is() -> None:
    message = str(LayerError(["fc", "zzz"], NAMES, "candidate.excluded"))
    assert message == (
        "candidate.excluded names layers that the model does not have: "
        "'fc' (did you mean '/classifier/fc/Gemm'?), 'zzz'. "
        "The model has 4 quantizable layers, from '/stem/Conv' to '/classifier/fc/Gemm'."
    )


def test_layer_error_of_a_model_without_layers() -> None:
    assert str(LayerError(["fc"], [], "quantization.exclude")) == (
        "quantization.exclude names layers, but the model has no quantizable layer."
    )


def test_layer_error_takes_any_iterable() -> None:
    assert "'a'" in str(LayerError(iter(["a"]), iter(NAMES), "here"))

"""The examples of the docstrings, run as they stand."""

import doctest
import inspect

import pytest

import seqto
from seqto.api import tune

FUNCTIONS = ["tune", "rank", "quantize", "load_study"]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_example_runs_as_it_stands(name: str) -> None:
    (example,) = (
        each
        for each in doctest.DocTestFinder(recurse=False).find(getattr(tune, name), name)
        if each.examples
    )
    found = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(example)
    assert found.attempted > 2 and found.failed == 0


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_argument_is_described(name: str) -> None:
    function = getattr(seqto, name)
    described = (inspect.getdoc(function) or "").partition("Args:")[2].partition("Returns:")[0]
    for argument in inspect.signature(function).parameters:
        assert f"    {argument}:" in described or f"    **{argument}:" in described, argument

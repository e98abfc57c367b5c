"""Arrays that do not fit a model are refused before it runs."""

import numpy as np
import pytest

from seqto.datasets.fit import check_fits, single_input
from seqto.errors import DatasetError
from seqto.types import TensorSpec

SPEC = TensorSpec("x", (1, 3, None), "float32")


@pytest.mark.parametrize("shape", [(5, 3, 7), (1, 3, 1)])
def test_free_dimensions_and_the_number_of_samples_are_free(shape: tuple[int, ...]) -> None:
    check_fits({"x": np.zeros(shape, np.float32)}, [SPEC], "mine")


@pytest.mark.parametrize(
    ("array", "given"),
    [
        (np.zeros((5, 4, 7), np.float32), r"float32\[\?, 4, 7\]"),
        (np.zeros((5, 3), np.float32), r"float32\[\?, 3\]"),
    ],
)
def test_misfit_says_what_is_wanted_and_given(array: np.ndarray, given: str) -> None:
    wanted = r"model input 'x' float32\[1, 3, \?\]"
    with pytest.raises(DatasetError, match=f"{wanted}.*dataset mine gives {given}.*dataset="):
        check_fits({"x": array}, [SPEC], "mine")


def test_what_is_wrong_is_what_the_remedy_is_for() -> None:
    with pytest.raises(DatasetError, match=r"gives uint8\[\?, 3, 7\]: .*astype\('float32'\)"):
        check_fits({"x": np.zeros((5, 3, 7), np.uint8)}, [SPEC], "mine")
    with pytest.raises(DatasetError, match=r"'model.batch_axes=\{x: null\}'"):
        check_fits({"x": np.zeros((5, 3, 7, 2), np.float32)}, [SPEC], "mine")
    other = TensorSpec("z", (1, 2), "float32")
    with pytest.raises(DatasetError, match="give 'z', too"):
        check_fits({"x": np.zeros((5, 3, 7), np.float32)}, [SPEC, other], "mine")


def test_missing_and_superfluous_arrays_are_refused() -> None:
    array = np.zeros((5, 3, 7), np.float32)
    with pytest.raises(DatasetError, match="model wants 'x'.*gives 'z'"):
        check_fits({"z": array}, [SPEC], "mine")
    with pytest.raises(DatasetError, match="model wants 'x'.*gives 'x', 'z'"):
        check_fits({"x": array, "z": array}, [SPEC], "mine")
    rate = TensorSpec("sr", (1,), "int64")
    with pytest.raises(DatasetError, match=r"'dataset\.constants=\{sr: <value>\}'"):
        check_fits({"x": array}, [SPEC, rate], "mine")


def test_single_input_is_the_only_one() -> None:
    assert single_input([SPEC], "mine") is SPEC
    with pytest.raises(DatasetError, match="model wants 2 inputs.*mine gives one array"):
        single_input([SPEC, SPEC], "mine")
    rate = TensorSpec("sr", (1,), "int64")
    with pytest.raises(DatasetError, match=r"'dataset\.constants=\{sr: <value>\}'"):
        single_input([SPEC, rate], "mine")
    with pytest.raises(DatasetError, match="model wants 0 inputs"):
        single_input([], "mine")

"""Archives of arrays hold what they are given, whatever numpy's version, and no objects."""

import io

import numpy as np
import pytest

from seqto.measuring.archive import write_arrays


@pytest.mark.parametrize("compressed", [False, True])
def test_an_archive_has_the_arrays_and_nothing_else(compressed: bool) -> None:
    file = io.BytesIO()
    write_arrays(file, {"y": np.arange(3), "z": np.ones(())}, compressed)
    file.seek(0)
    with np.load(file, allow_pickle=False) as found:
        assert sorted(found.files) == ["y", "z"]
        np.testing.assert_array_equal(found["y"], [0, 1, 2])


def test_objects_are_refused() -> None:
    with pytest.raises(ValueError, match="'y' has Python objects"):
        write_arrays(io.BytesIO(), {"y": np.array([{}], object)}, compressed=False)

"""Linear algebra on one thread, for as long as a function runs."""

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from seqto.graph.threads import on_one_thread


def blas_threads() -> set[int]:
    """Return how many threads numpy's and scipy's libraries take now."""
    np.linalg.inv(np.eye(2))
    return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}


def test_threads_are_as_before_afterwards() -> None:
    with threadpool_limits(2, user_api="blas"):
        assert on_one_thread(blas_threads)() == {1}
        assert blas_threads() == {2}


def test_threads_are_as_before_after_an_error() -> None:
    @on_one_thread
    def fail() -> None:
        raise ValueError("broken")

    with threadpool_limits(2, user_api="blas"):
        with pytest.raises(ValueError, match="broken"):
            fail()
        assert blas_threads() == {2}

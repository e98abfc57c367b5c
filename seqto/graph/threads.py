"""How many threads numpy's linear algebra takes."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from threadpoolctl import ThreadpoolController

Given = ParamSpec("Given")
Result = TypeVar("Result")

_controller = functools.cache(ThreadpoolController)


def on_one_thread(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Return the function with its matrices multiplied on one thread.

    Two threads of OpenBLAS take twice the CPU seconds of one: they wait for each other by spinning.
    """

    @functools.wraps(function)
    def calm(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        with _controller().limit(limits=1, user_api="blas"):
            return function(*args, **kwargs)

    return calm

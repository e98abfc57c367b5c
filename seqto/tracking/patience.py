"""A client of MLflow that calls again where calling twice does no harm."""

import functools
import re
from collections.abc import Callable
from typing import Any

from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

_AWAY = re.compile(r"API request to .*? (failed with exception|.*error code 5\d\d)", re.DOTALL)

_CUT_OFF = "Connection broken"
"""How `requests` calls an answer that ends before its end."""

_AT_ONCE = re.compile("unique constraint|duplicate entry", re.IGNORECASE)
"""How databases refuse a row that another process inserted since MLflow looked for it."""

_SAME_TWICE = (
    *("get_", "search_", "list_", "download_", "set_", "update_run"),
    *("log_batch", "log_inputs", "log_text", "log_artifact"),
)
"""How the names of methods begin that may be called twice: they read, or write the same again."""

_TIMES = 3


def is_outage(error: BaseException) -> bool:
    """Tell whether a server did not answer, also after MLflow's own attempts."""
    return isinstance(error, MlflowException) and bool(_AWAY.search(str(error)))


class PatientClient(MlflowClient):
    """MLflow's client, which calls again if an answer was cut off or others wrote the same.

    MLflow waits for a server that does not answer, but not if it had begun to; and of two processes
    that record the same data set for the first time at once, it refuses one.
    """

    def __getattribute__(self, name: str) -> Any:
        """Return the attribute; a method that may be called twice is, if it has to."""
        found = super().__getattribute__(name)
        return _again(found) if name.startswith(_SAME_TWICE) else found


def _again(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def patient(*args: Any, **options: Any) -> Any:
        for _ in range(_TIMES - 1):
            try:
                return function(*args, **options)
            except MlflowException as error:
                if not _passes(error):
                    raise
        return function(*args, **options)

    return patient


def _passes(error: MlflowException) -> bool:
    """Tell whether the same call may well succeed now."""
    text = str(error)
    return _CUT_OFF in text if is_outage(error) else bool(_AT_ONCE.search(text))

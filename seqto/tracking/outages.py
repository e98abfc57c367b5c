"""Servers that no longer answer, told as what they are."""

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from mlflow.exceptions import MlflowException

from seqto.errors import TrackingError
from seqto.interrupts import put_off
from seqto.secrets import mask_error
from seqto.tracking.patience import is_outage
from seqto.tracking.stores import cause_of

P = ParamSpec("P")
T = TypeVar("T")


class HasStore(Protocol):
    """What knows where it records to."""

    @property
    def store(self) -> str:
        """The URI of the store."""
        ...


S = TypeVar("S", bound=HasStore)


def in_one_go(function: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Return the method with signals delayed until it has ended, and with a word on outages."""

    @functools.wraps(function)
    def whole(self: S, *args: P.args, **options: P.kwargs) -> T:
        try:
            with put_off():
                return function(self, *args, **options)
        except MlflowException as error:
            if is_outage(error):
                raise _outage(self.store, error) from error
            raise

    return whole


def _outage(store: str, error: Any) -> TrackingError:
    mask_error(error)
    return TrackingError(
        f"MLflow at {store} no longer answers: {cause_of(error)}. What was recorded is kept: the "
        "same command goes on when it is back."
    )

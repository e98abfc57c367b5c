"""A function of the user's, named in a config."""

import functools
import importlib
from collections.abc import Callable
from typing import Any

from seqto.errors import ConfigError, nearest, reason


@functools.cache
def named_function(path: str, key: str) -> Callable[..., Any]:
    """Return the function that `module:function` names; `key` is where users said so."""
    module, _, name = path.partition(":")
    if not module or not name:
        raise ConfigError(f"{key}={path} names no function: write it as mypkg.module:function.")
    try:
        found = importlib.import_module(module)
    # Whatever the user's module raises when it is imported.
    except Exception as error:
        raise ConfigError(
            f"{key}={path} cannot be imported: {reason(error)}. Install its package, or set "
            "PYTHONPATH to the folder that holds it."
        ) from error
    function: Callable[..., Any] | None = getattr(found, name, None)
    if function is None or not callable(function):
        known = [each for each in vars(found) if callable(getattr(found, each))]
        raise ConfigError(f"{key}={path}: {module} has no function {name!r}{nearest(name, known)}.")
    return function

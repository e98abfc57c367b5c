"""What identifies a part of a study: its class and its fields.

The keys of studies and caches are made from it, so parts that differ in a single field are never
confused, whether they come from a config or from Python.
"""

import dataclasses
import enum
import functools
import hashlib
import pickle
from collections.abc import Mapping, Set
from pathlib import PurePath
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np

from seqto.errors import ConfigError
from seqto.types import sha256

TARGET = "_target_"
"""The config key that names a class."""

_PLAIN = (str, int, float, bool, type(None))


def identity(thing: object) -> Any:
    """Return what identifies an object, ready for JSON.

    For a dataclass it is the class and the fields that count in comparisons; for other objects the
    class and the attributes that do not begin with `_`. A user's own code is part of it: an edited
    metric is another metric.
    """
    return _Identity(settings=False).of(thing)


def settings(part: object) -> dict[str, Any]:
    """Return the class and all fields of a part, including those that do not identify it.

    Fields with `repr=False` are data, not settings, and are left out.
    """
    found = _Identity(settings=True).of(part)
    return found if isinstance(found, dict) else {TARGET: str(found)}


class _Identity:
    """Walks through an object; functions that call each other are visited once."""

    def __init__(self, settings: bool) -> None:
        self._settings = settings
        self._visited: set[CodeType] = set()

    def of(self, thing: object) -> Any:
        if isinstance(thing, enum.Enum):
            return self.of(thing.value)
        if isinstance(thing, _PLAIN):
            return thing
        if isinstance(thing, PurePath):
            return str(thing)
        if isinstance(thing, np.ndarray):
            values = self.of(thing.tolist()) if thing.dtype.hasobject else _digest(thing)
            return {"array": [thing.dtype.str, list(thing.shape), values]}
        if isinstance(thing, np.generic):
            return thing.item()
        if isinstance(thing, bytes):
            return {"bytes": sha256(thing)}
        if isinstance(thing, Mapping):
            return {str(name): self.of(value) for name, value in thing.items()}
        if isinstance(thing, list | tuple):
            return [self.of(each) for each in thing]
        if isinstance(thing, Set):
            return sorted((self.of(each) for each in thing), key=repr)
        return self._of_object(thing)

    def _of_object(self, thing: object) -> Any:
        if isinstance(thing, type):
            return {TARGET: _path(thing), **self._code_of_class(thing)}
        if isinstance(thing, MethodType):
            return {"method": self.of(thing.__func__), "self": self.of(thing.__self__)}
        if isinstance(thing, FunctionType):
            return {TARGET: _path(thing), **self._code_of(thing)}
        if isinstance(thing, functools.partial):
            return {"partial": [self.of(each) for each in (thing.func, thing.args, thing.keywords)]}
        return {TARGET: _path(type(thing)), **self._code_of_class(type(thing)), **self._held(thing)}

    def _held(self, thing: object) -> dict[str, Any]:
        """Return the fields of a dataclass, or the public attributes of another object."""
        if dataclasses.is_dataclass(thing):
            counts = (lambda each: each.repr) if self._settings else (lambda each: each.compare)
            fields = [each.name for each in dataclasses.fields(thing) if counts(each)]
            return {name: self.of(getattr(thing, name)) for name in fields}
        if hasattr(thing, "__dict__"):
            public = {name: each for name, each in vars(thing).items() if name[0] != "_"}
            return {name: self.of(each) for name, each in public.items()}
        try:
            return {"pickled": sha256(pickle.dumps(thing))}
        except Exception as error:  # Whatever the object's own code raises.
            raise ConfigError(
                f"a study's key needs to identify {thing!r}, but it cannot be pickled: make its "
                "class a dataclass, or keep it in an attribute that begins with _."
            ) from error

    def _code_of_class(self, kind: type) -> dict[str, Any]:
        """Return a key of the code of a user's class, because it may be edited any time."""
        if self._settings or _is_known(kind):
            return {}
        own = [each for each in kind.__mro__ if not _is_known(each)]
        functions = [value for each in own for value in vars(each).values()]
        found = [self._code_of(each) for each in functions if isinstance(each, FunctionType)]
        return {"code": sha256(repr(found).encode())}

    def _code_of(self, function: FunctionType) -> dict[str, Any]:
        """Return a key of a user's function, its closure, and functions of its module it calls."""
        code = function.__code__
        if self._settings or code in self._visited or _is_known(function):
            return {}
        self._visited.add(code)
        cells = [self.of(cell.cell_contents) for cell in function.__closure__ or ()]
        beside = [function.__globals__.get(name) for name in code.co_names]
        called = [
            self._code_of(each)
            for each in beside
            if isinstance(each, FunctionType) and each.__module__ == function.__module__
        ]
        defaults = self.of([function.__defaults__, function.__kwdefaults__])
        return {"code": sha256(repr([_code(code), cells, called, defaults]).encode())}


def _code(code: CodeType) -> list[Any]:
    """Return a function's instructions, constants and names, but not its file or lines."""
    return [code.co_code, [_constant(each) for each in code.co_consts], code.co_names]


def _constant(value: object) -> Any:
    if isinstance(value, CodeType):
        return _code(value)
    # The order of a set differs between processes.
    return sorted(map(repr, value)) if isinstance(value, frozenset) else value


def _is_known(thing: Any) -> bool:
    """Tell whether code belongs to a released library, which has a version."""
    root = thing.__module__.partition(".")[0]
    return root in ("seqto", "builtins", "typing", "abc", "enum", "numpy", "pydantic", "onnx")


def _path(thing: Any) -> str:
    return f"{thing.__module__}.{thing.__qualname__}"


def _digest(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()

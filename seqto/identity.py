"""What identifies a part of a study: its class and its fields.

Keys of studies and of what is cached are made from it, so that no part is taken for another one
that differs in a single field, whether it was made from a config or in Python. Secrets are masked:
a study with a new password is the same study.
"""

import contextlib
import dataclasses
import enum
import functools
import hashlib
import logging
import pickle
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping, Set
from pathlib import Path, PurePath
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from seqto.secrets import MASK, is_secret, masked_by_form
from seqto.types import sha256

TARGET = "_target_"
"""The name of the class, as configs call it."""

_PLAIN = (int, float, bool, type(None))
_INSTALLED = ("site-packages", "dist-packages")

_log = logging.getLogger(__name__)


def identity(thing: object) -> Any:
    """Return what identifies an object, ready for JSON.

    For a dataclass it is the class and the fields that count in comparisons, for any other object
    the class and all its attributes. Code of the user's own is part of it, with the values that it
    uses: a metric that was edited is another metric.
    """
    return _Walk(settings=False).of(thing)


def settings(part: object) -> dict[str, Any]:
    """Return the class and all fields of a part, also those that do not identify it.

    A field that is not to be shown (`repr=False`) is data, not a setting.
    """
    found = _Walk(settings=True).of(part)
    return found if isinstance(found, dict) else {TARGET: str(found)}


class _Walk:
    """One walk through an object and all that it holds, which may be itself again."""

    def __init__(self, settings: bool) -> None:
        self._settings = settings
        self._way: list[int] = []
        """The objects that the walk is inside of, by their ids."""

    def of(self, thing: object) -> Any:
        if isinstance(thing, enum.Enum):
            return self.of(thing.value)
        if isinstance(thing, str):
            return masked_by_form(thing)
        if isinstance(thing, _PLAIN):
            return thing
        if isinstance(thing, PurePath):
            return masked_by_form(str(thing))
        if isinstance(thing, np.ndarray):
            values = self.of(thing.tolist()) if thing.dtype.hasobject else _digest(thing)
            return {"array": [thing.dtype.str, list(thing.shape), values]}
        if isinstance(thing, np.generic):
            return thing.item()
        if isinstance(thing, bytes):
            return {"bytes": sha256(thing)}
        if isinstance(thing, ModuleType):
            return {"module": thing.__name__, **_source(thing)}
        if id(thing) in self._way:
            return {"seen": self._way.index(id(thing))}
        self._way.append(id(thing))
        try:
            return self._inside(thing)
        finally:
            self._way.pop()

    def _inside(self, thing: Any) -> Any:
        if isinstance(thing, Mapping):
            return self._named(thing.items())
        if isinstance(thing, list | tuple):
            return [self.of(each) for each in thing]
        if isinstance(thing, Set):
            return sorted((self.of(each) for each in thing), key=repr)
        return self._of_object(thing)

    def _of_object(self, thing: Any) -> Any:
        if isinstance(thing, type):
            return {TARGET: _path(thing), **self._class_code(thing)}
        if isinstance(thing, MethodType):
            return {"method": self.of(thing.__func__), "self": self.of(thing.__self__)}
        if isinstance(thing, FunctionType):
            return {TARGET: _path(thing), **self._function_code(thing)}
        if isinstance(thing, functools.partial):
            return {"partial": [self.of(each) for each in (thing.func, thing.args, thing.keywords)]}
        if hasattr(thing, "__wrapped__"):
            return {TARGET: _path(type(thing)), "wrapped": self.of(thing.__wrapped__)}
        return {TARGET: _path(type(thing)), **self._class_code(type(thing)), **self._held(thing)}

    def _held(self, thing: Any) -> dict[str, Any]:
        """Return the fields of a dataclass, or the attributes of another object."""
        if dataclasses.is_dataclass(thing):
            counts = (lambda each: each.repr) if self._settings else (lambda each: each.compare)
            fields = [each.name for each in dataclasses.fields(thing) if counts(each)]
            return self._named((name, getattr(thing, name)) for name in fields)
        if not _is_released(type(thing)) and hasattr(thing, "__dict__"):
            kept = _kept_by_properties(type(thing))
            return self._named(item for item in vars(thing).items() if item[0] not in kept)
        try:
            return {"pickled": sha256(pickle.dumps(thing))}
        except Exception:  # Whatever the object's own code raises.
            _log.warning(
                "Nothing identifies a %s beyond this process, so that a study that uses it cannot "
                "be resumed. Make its class a dataclass that leaves it out of comparisons: "
                "field(compare=False).",
                _path(type(thing)),
            )
            return {"unique": uuid.uuid4().hex}

    def _named(self, items: Iterable[tuple[Any, Any]]) -> dict[str, Any]:
        return {
            str(name): MASK if is_secret(str(name), each) else self.of(each) for name, each in items
        }

    def _class_code(self, kind: type) -> dict[str, Any]:
        """Return the code of a user's class, as it may be edited at any time."""
        if self._settings or _is_released(kind):
            return {}
        own = [each for each in kind.__mro__ if not _is_released(each)]
        found = [
            [name, self.of(each)]
            for base in own
            for name, value in vars(base).items()
            if not (name.startswith("__") and name.endswith("__") and not callable(value))
            for each in _functions(value)
        ]
        return {"code": sha256(repr(found).encode())}

    def _function_code(self, function: FunctionType) -> dict[str, Any]:
        """Return a user's function with what it holds and uses."""
        if self._settings or _is_released(function):
            return {}
        code = function.__code__
        cells = [self.of(cell.cell_contents) for cell in function.__closure__ or ()]
        used = {
            name: function.__globals__[name]
            for name in sorted(set(_names(code)))
            if name in function.__globals__
        }
        defaults = self.of([function.__defaults__, function.__kwdefaults__])
        # What is reached through a module of the user's is used too.
        used |= {
            f"{name}.{inner}": getattr(module, inner)
            for name, module in list(used.items())
            if isinstance(module, ModuleType) and not _is_released(module)
            for inner in sorted(set(_names(code)))
            if hasattr(module, inner)
        }
        held = [cells, {name: self.of(value) for name, value in used.items()}, defaults]
        return {"code": sha256(repr([_instructions(code), held]).encode())}


def _functions(value: Any) -> list[Any]:
    """Return what is to be identified of a class's attribute: the functions that are behind it."""
    if isinstance(value, staticmethod | classmethod):
        return [value.__func__]
    if isinstance(value, property):
        return [each for each in (value.fget, value.fset) if each is not None]
    if isinstance(value, functools.cached_property):
        return [value.func]
    # What Python itself puts there: slots, __weakref__, the state of abstract classes.
    hidden = type(value).__name__ in ("member_descriptor", "getset_descriptor", "_abc_data")
    return [] if hidden else [value]


def _kept_by_properties(kind: type) -> set[str]:
    """Return the attributes that appear only once somebody has asked for them."""
    every = [item for each in kind.__mro__ for item in vars(each).items()]
    return {name for name, value in every if isinstance(value, functools.cached_property)}


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names that a function uses, those of functions within it included."""
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _names(each)


def _instructions(code: CodeType) -> list[Any]:
    """Return a function's instructions, constants and names, without the place where it lies."""
    return [code.co_code, [_constant(each) for each in code.co_consts], code.co_names]


def _constant(value: object) -> Any:
    if isinstance(value, CodeType):
        return _instructions(value)
    # A set has another order in each process.
    return sorted(map(repr, value)) if isinstance(value, frozenset) else value


def _source(module: ModuleType) -> dict[str, str]:
    """Return the digest of a user's module, as it may be edited at any time."""
    file = getattr(module, "__file__", None)
    if file is None or _is_released(module):
        return {}
    with contextlib.suppress(OSError):
        return {"source": sha256(Path(file).read_bytes())}
    return {}


def _is_released(thing: Any) -> bool:
    """Tell whether code is of a release, which has a version, and not the user's own."""
    name = thing.__name__ if isinstance(thing, ModuleType) else thing.__module__
    root = str(name).partition(".")[0]
    if root == "seqto" or root in sys.stdlib_module_names:
        return True
    file = getattr(sys.modules.get(root), "__file__", None) or ""
    return any(folder in PurePath(file).parts for folder in _INSTALLED)


def _path(thing: Any) -> str:
    return f"{thing.__module__}.{thing.__qualname__}"


def _digest(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()

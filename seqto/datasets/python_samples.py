"""Samples that a function of the user's own yields."""

import importlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, PositiveInt
from pydantic.dataclasses import dataclass

from seqto.datasets.draw import CalibrationSize, EvaluationSize
from seqto.datasets.memory_samples import InMemorySamples
from seqto.datasets.targets import is_array
from seqto.errors import ConfigError, DatasetError, SeqtoError, nearest, reason
from seqto.identity import identity
from seqto.types import Splits, TensorSpec


@dataclass(config=ConfigDict(extra="forbid"), kw_only=True)
class PythonSamples:
    """What `target`, written `package.module:name`, yields: inputs, or pairs (inputs, label).

    It is a function without arguments, or an iterable. Inputs are an array, or a dict of arrays by
    input name; a label is whatever the task compares outputs with. Modules are found in the current
    folder too. Samples are drawn once with the seed.
    """

    target: str
    calibration_size: CalibrationSize = None
    evaluation_size: EvaluationSize = None
    chunk_size: PositiveInt = 32
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    name: str = field(default="", init=False, compare=False)
    code: Any = field(default=None, init=False, repr=False)
    """What identifies the function, so that one that was edited is another dataset."""

    def __post_init__(self) -> None:
        self.name = self.target
        self._samples: InMemorySamples | None = None
        found = _imported(self.target)
        self.code = identity(found) if callable(found) else None

    def has(self, name: str) -> bool:
        """Return whether the samples have values for the input of this name."""
        return self._read().has(name)

    def load(self, inputs: Sequence[TensorSpec]) -> Splits:
        """Return the splits under the names of the model's inputs."""
        try:
            return self._read().load(inputs)
        except DatasetError as error:
            # What the function itself did wrong names it already.
            named = "" if self.target in str(error) else f"dataset.target={self.target}: "
            raise DatasetError(f"{named}{error}") from error

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what was read: other processes get the samples that are to be measured."""
        return {**self.__dict__, "_samples": None}

    def _read(self) -> InMemorySamples:
        """Return the samples, which are read once."""
        if self._samples is None:
            self._samples = InMemorySamples(
                name=self.name,
                samples=_given(_imported(self.target), self.target),
                calibration_size=self.calibration_size,
                evaluation_size=self.evaluation_size,
                chunk_size=self.chunk_size,
                seed=self.seed,
            )
        return self._samples


def _imported(target: str) -> Any:
    """Return what the user's module has under this name."""
    module_name, _, name = target.rpartition(":")
    if not module_name or not name:
        raise ConfigError(
            f"dataset.target={target} has to be a module and a name in it, such as "
            "dataset.target=mypkg.data:samples."
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # Whatever the user's module raises.
        raise ConfigError(
            f"dataset.target={target} cannot be imported ({reason(error)}): name a module that is "
            f"installed, or a file in {here}."
        ) from error
    if not hasattr(module, name):
        known = [each for each in vars(module) if not each.startswith("_")]
        raise ConfigError(
            f"dataset.target={target}: {module_name} has no {name!r}{nearest(name, known)}."
        )
    return getattr(module, name)


def _given(found: Any, target: str) -> Any:
    """Return the samples: what a function returns, or the object itself."""
    if callable(found):
        try:
            found = found()
        except SeqtoError:
            raise
        except Exception as error:  # Whatever the user's function raises.
            raise DatasetError(f"dataset.target={target} fails: {reason(error)}.") from error
    if found is None:
        raise DatasetError(f"dataset.target={target} returns None: return or yield samples.")
    by_name = isinstance(found, Mapping) or is_array(found) or isinstance(found, list | tuple)
    return found if by_name or not isinstance(found, Iterable) else _watched(found, target)


def _watched(samples: Iterable[Any], target: str) -> Iterator[Any]:
    """Yield the samples, and tell which one cannot be made."""
    number = 0
    items = iter(samples)
    while True:
        try:
            item = next(items)
        except StopIteration:
            return
        except Exception as error:  # Whatever the user's function raises.
            raise DatasetError(
                f"dataset.target={target} fails at sample {number}, counted from 0: {reason(error)}"
            ) from error
        yield item
        number += 1

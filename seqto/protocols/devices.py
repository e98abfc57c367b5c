"""What candidates run on."""

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from seqto.types import Arrays, Kernel, Latency, Loading, Model, Profile


class Program(Protocol):
    """A model loaded on a device."""

    def run(self, inputs: Arrays) -> list[np.ndarray]:
        """Return the outputs for these samples, in the order of the graph.

        The same inputs give the same outputs. DeviceError: `<device> cannot run ...`.
        """
        ...

    def time(self, inputs: Arrays) -> Latency:
        """Return how long inference of these samples takes, warmed up."""
        ...

    def close(self) -> None:
        """Free what the program holds; other programs of the device are not affected."""
        ...


class Device(Protocol):
    """What candidates run on.

    It does not change models. The kind of a DeviceError says whose fault a failure is: a
    `DeviceTransportError` says nothing about the candidate; every other kind blames it, and seqto
    then looks for the layers responsible.
    """

    name: str

    def load(self, model: Model) -> Program:
        """Return the model ready to run; DeviceError: `<device> cannot load '<model>' ...`."""
        ...

    def describe(self) -> Mapping[str, str]:
        """Return what a reader must know to compare results, as short facts by name.

        They are the same each time, shorter than 200 characters, and include a `runtime`. Facts
        named `session.*` are session options that the model needs wherever it is loaded.
        """
        ...

    def kernels(self, model: Model) -> Mapping[str, Kernel]:
        """Return the kernel of each node, by the node's name, as far as known."""
        ...


@runtime_checkable
class TakesTurns(Program, Protocol):
    """Optional, for programs of a device that holds several models and can time single calls.

    Models that are compared are then called in turns.
    """

    @property
    def turns(self) -> int:
        """How many turns tell how long a model takes."""
        ...

    def times(self, inputs: Arrays, calls: int) -> Sequence[float]:
        """Return the milliseconds of each of so many calls for these samples, not warmed up."""
        ...


@runtime_checkable
class HasNeeds(Protocol):
    """Optional, for a device that needs more than this package, such as a compiler or a phone."""

    def needs(self, wait: bool = False) -> Mapping[str, str]:
        """Return what it needs, and what of that is missing, with the remedy; "" if it is there.

        Nothing is computed or compiled. `wait`: if it is only the device that is missing, wait for
        it as long as its settings say.
        """
        ...


@runtime_checkable
class StandIn(Protocol):
    """Optional, for a device that takes long to load a model."""

    @property
    def stand_in(self) -> Device:
        """Another device with the same arithmetic, on which a search screens its candidates."""
        ...


@runtime_checkable
class DecodesWeights(Protocol):
    """Optional, for a device that computes what depends on constants only when it loads a model."""

    @property
    def decodes_weights(self) -> bool:
        """Whether coded weights are decoded then: a model with them runs like the float model."""
        ...


@runtime_checkable
class MeasuresLoading(Protocol):
    """Optional, for a device that can tell what loading a model takes."""

    def load_measured(self, model: Model) -> tuple[Program, Loading | None]:
        """Return what `load` returns, and what loading took where the model runs.

        It does what `load` does, once. What happens before the device has the model, such as
        compiling it, does not count. What cannot be measured is None, never a guess.
        """
        ...


@runtime_checkable
class SharesPrefixes(Protocol):
    """Optional, for a device that can run a model in parts."""

    @property
    def shares_prefixes(self) -> bool:
        """Whether parts compute the same as the whole model, and cost little to load.

        The common beginning of several candidates then runs only once.
        """
        ...


@runtime_checkable
class SeveralWorkers(Protocol):
    """Optional, for a device that several processes may use at once."""

    @property
    def workers(self) -> int | None:
        """How many processes measure candidates in parallel; None means one per core."""
        ...


@runtime_checkable
class Profiles(Protocol):
    """Optional, for a device that can tell how long each part of a model takes.

    Searches then know how fast a candidate will be before it is built.
    """

    def profile(self, model: Model, inputs: Arrays) -> Profile | None:
        """Return the time of each kernel for these samples, warmed up; None if it cannot be told.

        Together they take about as long as the model does; each names the model's nodes that it
        runs. DeviceError: as from `load` and `run`.
        """
        ...

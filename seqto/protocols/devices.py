"""What candidates run on."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import numpy as np

from seqto.types import Arrays, Kernel, Latency, Model


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
        """Free what the program holds; other programs of the device go on."""
        ...


class Device(Protocol):
    """What candidates run on.

    It leaves models as they are. A failure is a DeviceError of the kind that says whose fault it
    is: a `DeviceTransportError` says nothing about the candidate, every other kind blames it, and
    seqto then looks for the layers responsible.
    """

    name: str

    def load(self, model: Model) -> Program:
        """Return the model ready to run; DeviceError: `<device> cannot load '<model>' ...`."""
        ...

    def describe(self) -> Mapping[str, str]:
        """Return what a reader must know to compare results, as short facts by name.

        They are the same each time, under 200 characters each, and there is a `runtime`. Facts
        named `session.*` are options that the model needs wherever it is loaded.
        """
        ...

    def kernels(self, model: Model) -> Mapping[str, Kernel]:
        """Return what runs each node of the model, by the node's name, as far as it is known."""
        ...


@runtime_checkable
class StandIn(Protocol):
    """What a device offers besides that takes long to load a model."""

    @property
    def stand_in(self) -> Device:
        """Another device, of the same arithmetic, on which a search screens its candidates."""
        ...


@runtime_checkable
class SharesPrefixes(Protocol):
    """What a device offers besides on which parts of a model may run one after the other."""

    @property
    def shares_prefixes(self) -> bool:
        """Whether parts compute what they do in the whole, and cost little to load.

        What several candidates have in common at their beginning is then run once.
        """
        ...


@runtime_checkable
class SeveralWorkers(Protocol):
    """What a device offers besides that several processes may use at once."""

    @property
    def workers(self) -> int | None:
        """How many processes measure candidates side by side; None: as many as there are cores."""
        ...

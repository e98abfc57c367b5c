"""A device for tests and trials: ONNX Runtime that fails on demand."""

import os
import signal
import time
from collections.abc import Collection, Mapping
from dataclasses import field
from typing import Annotated

import numpy as np
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from seqto.devices.isolated import IsolatedProgram
from seqto.devices.loading import watched
from seqto.devices.onnxruntime import OnnxRuntimeDevice, OnnxRuntimeProgram
from seqto.errors import DeviceImportError, DeviceTransportError
from seqto.graph.quantized import QUANTIZING, operations, quantized_nodes
from seqto.types import Arrays, Kernel, Latency, Loading, Model


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class FakeDevice:
    """A CPU that rejects, crashes on, hangs on or gets lost on given operations or layers.

    Each name is a quantizing operation such as `ConvInteger` or `QuantizeLinear`, an operation such
    as `Gemm` where it is quantized, or the name of a quantized layer.
    """

    name: str = "fake"
    rejects: list[str] = field(default_factory=list)
    crashes: list[str] = field(default_factory=list)
    hangs: list[str] = field(default_factory=list)
    loses: list[str] = field(default_factory=list)
    seconds: Annotated[float, Field(gt=0)] = 60
    warmup: Annotated[int, Field(ge=0)] = 1
    repeats: Annotated[int, Field(ge=1)] = 5

    def load(self, model: Model) -> IsolatedProgram:
        """Return the model in a separate process."""
        return IsolatedProgram.load(_Faulty(self), model, self.seconds)

    def load_measured(self, model: Model) -> tuple[IsolatedProgram, Loading | None]:
        """Return the model in a separate process, and what loading it there took."""
        return watched(lambda: self.load(model))

    def describe(self) -> Mapping[str, str]:
        """Return ONNX Runtime's facts, and what this device fails on."""
        faults = ("rejects", "crashes", "hangs", "loses")
        listed = {name: ",".join(getattr(self, name))[:150] for name in faults}
        return {**self.runtime().describe(), **{k: v for k, v in listed.items() if v}}

    def kernels(self, model: Model) -> Mapping[str, Kernel]:
        """Return the kernel that ONNX Runtime runs for each node."""
        return self.runtime().kernels(model)

    def runtime(self) -> OnnxRuntimeDevice:
        """Return the device that does the work."""
        return OnnxRuntimeDevice(name=self.name, warmup=self.warmup, repeats=self.repeats)


class _Faulty:
    """The part that runs in the candidate's process."""

    def __init__(self, device: FakeDevice) -> None:
        self.name, self.repeats, self._device = device.name, device.repeats, device

    def load(self, model: Model) -> "_FaultyProgram":
        present = _present(model)
        if found := _first(self._device.rejects, present):
            raise DeviceImportError(
                f"{self.name} cannot load {model.name!r}: operation {found} is not implemented"
            )
        return _FaultyProgram(self._device.runtime().load_here(model), self._device, present)


class _FaultyProgram:
    """A program that may crash its process, or hang."""

    def __init__(
        self, program: OnnxRuntimeProgram, device: FakeDevice, present: Collection[str]
    ) -> None:
        self._program, self._device, self._present = program, device, present

    def run(self, inputs: Arrays) -> list[np.ndarray]:
        if _first(self._device.crashes, self._present):
            # A real crash of the process, like that of a faulty kernel.
            os.kill(os.getpid(), signal.SIGSEGV)
        while _first(self._device.hangs, self._present):
            time.sleep(1)
        if _first(self._device.loses, self._present):
            raise DeviceTransportError(f"{self._device.name} was lost: the session broke off")
        return self._program.run(inputs)

    def time(self, inputs: Arrays) -> Latency:
        return self._program.time(inputs)

    def times(self, inputs: Arrays, calls: int) -> list[float]:
        return self._program.times(inputs, calls)


def _present(model: Model) -> set[str]:
    """Return the candidate's quantized layers and operations that a fault can name."""
    quantized = quantized_nodes(model)
    return {*quantized, *quantized.values(), *(operations(model) & set(QUANTIZING))}


def _first(names: Collection[str], present: Collection[str]) -> str:
    return next((name for name in names if name in present), "")

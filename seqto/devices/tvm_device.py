"""Devices that Apache TVM compiles for: this machine, or one behind an RPC tracker."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from seqto.devices import tvm_run
from seqto.devices.helper_process import (
    START_SECONDS,
    Worker,
    WorkerCrashError,
    WorkerTimeoutError,
    lease,
    release,
)
from seqto.devices.loading import watched
from seqto.devices.onnxruntime import OnnxRuntimeDevice, cpu_name
from seqto.devices.tvm_compile import (
    Recipe,
    compile_library,
    host_cpu,
    require_tvm,
    tvm_version,
)
from seqto.devices.tvm_links import Link, LocalLink, RemoteLink, Whereabouts
from seqto.devices.tvm_local import HOST, local_servers
from seqto.devices.tvm_needs import device_lacks, driver_here_lacks, linker_lacks, no_code_for
from seqto.errors import (
    ConfigError,
    DeviceCompileError,
    DeviceError,
    DeviceRunError,
    DeviceTimeoutError,
)
from seqto.graph.load import first_line, input_specs
from seqto.types import Arrays, Kernel, Latency, Loading, Model, TensorSpec
from seqto.workspace import Workspace, kept

AUTO = "auto"


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class TvmDevice:
    """A machine that TVM compiles for; candidates run one sample at a time."""

    name: str = "tvm"
    target: dict[str, Any] = field(default_factory=lambda: {"kind": "llvm", "mcpu": AUTO})
    host: dict[str, Any] | None = None
    linker: Literal["cc", "ndk"] = "cc"
    scheduled: bool = True
    threads: Annotated[int, Field(ge=1)] | None = None
    chunk_size: Annotated[int, Field(ge=1)] = 32
    compile_seconds: Annotated[float, Field(gt=0)] = 900
    seconds: Annotated[float, Field(gt=0)] = 300
    warmup: Annotated[int, Field(ge=0)] = 3
    repeats: Annotated[int, Field(ge=1)] = 20
    tracker: str | None = None
    key: str = "seqto"
    start_local: bool = False
    wait_seconds: Annotated[float, Field(ge=0)] = 60
    attempts: Annotated[int, Field(ge=1)] = 5
    pause_seconds: Annotated[float, Field(ge=0)] = 1
    session_seconds: Annotated[float, Field(gt=0)] = 60

    def __post_init__(self) -> None:
        """Refuse settings that cannot work, before anything is compiled."""
        require_tvm(self.name)
        if "kind" not in self.target:
            raise ConfigError("device.target needs a kind: llvm, opencl, cuda, vulkan, ...")
        if self.tracker is not None:
            self._address()

    def load(self, model: Model) -> "TvmProgram":
        """Return the model, compiled and loaded on the device."""
        return TvmProgram(self, self._link(self._library(model)), input_specs(model))

    def load_measured(self, model: Model) -> "tuple[TvmProgram, Loading | None]":
        """Return the model on the device, and what loading its library took, if that is here."""
        return watched(lambda: self.load(model))

    def kernels(self, model: Model) -> Mapping[str, Kernel]:
        """Return nothing: TVM does not say which kernel runs a node."""
        return {}

    def describe(self) -> Mapping[str, str]:
        """Return TVM's version, the target, and how code is made for it."""
        target = self._recipe().target
        facts = {
            "runtime": f"tvm {tvm_version()}",
            "target": first_line(" ".join(f"{name}={value}" for name, value in target.items())),
            "kernels": self._kernels(),
        }
        if self._remote and not self.start_local:
            return {**facts, "key": self.key}
        return {**facts, "threads": str(self._threads), "cpu": cpu_name()}

    def needs(self, wait: bool = False) -> Mapping[str, str]:
        """Return what it needs, and what of that is missing, with the remedy; compile nothing."""
        lacks = {"compiler": linker_lacks(self._recipe())}
        worker = lease(self._environment())
        try:
            lacks |= self._asked(worker, wait and not any(lacks.values()))
        except (WorkerCrashError, WorkerTimeoutError, DeviceError) as error:
            lacks["device"] = f"an answer of it: {error}"
        finally:
            # The session, if one was opened, is closed in an orderly way.
            release(worker)
        return lacks

    def _asked(self, worker: Worker, wait: bool) -> dict[str, str]:
        kind = self.target["kind"]
        lacks = {"code": worker.call(no_code_for, kind, seconds=START_SECONDS)}
        if self._remote and not self.start_local:
            place = Whereabouts(self.name, *self._address(), self.key)
            return lacks | device_lacks(worker, place, kind, self.wait_seconds if wait else 0)
        return lacks | {"driver": worker.call(driver_here_lacks, kind, seconds=START_SECONDS)}

    @property
    def stand_in(self) -> OnnxRuntimeDevice:
        """The device that screens candidates: the same integers, without compiling each."""
        return OnnxRuntimeDevice(name=self.name)

    def _kernels(self) -> str:
        """Return who chooses how code is made: seqto's schedule for CPUs, else TVM's pipeline."""
        if self.target["kind"] != "llvm":
            return "scheduled by dlight"
        return "vectorized, parallel" if self.scheduled else "unscheduled"

    @property
    def _remote(self) -> bool:
        return self.start_local or self.tracker is not None

    @property
    def _threads(self) -> int:
        return self.threads or os.cpu_count() or 1

    def _recipe(self) -> Recipe:
        """Return the recipe, with automatic values filled in and nulls removed."""
        target = _given(self.target)
        here = target["kind"] == "llvm" and (self.start_local or not self._remote)
        if target.get("mcpu") == AUTO:
            # The CPU of a remote machine is only known to its owner.
            target = {**target, "mcpu": host_cpu()} if here else _without(target, "mcpu")
        if here:
            target.setdefault("num-cores", self._threads)
        host = None if self.host is None else _given(self.host)
        return Recipe(target, host, self.linker, self.scheduled)

    def _library(self, model: Model) -> Path:
        """Return the path of the model's library; compile it if the workspace has none."""
        recipe = self._recipe()
        path = Workspace.default().library(recipe.key(model))
        return kept(path, lambda path: self._compile(model, recipe, path))

    def _compile(self, model: Model, recipe: Recipe, path: Path) -> None:
        worker = lease(recipe.environment())
        try:
            worker.call(
                compile_library, model, recipe, self.name, path, seconds=self.compile_seconds
            )
        except WorkerCrashError as error:
            raise DeviceCompileError(
                f"{self.name} cannot compile {model.name!r}: {error}"
            ) from error
        except WorkerTimeoutError as error:
            raise DeviceTimeoutError(
                f"{self.name} cannot compile {model.name!r}: {error}. If it is only slow, raise "
                "device.compile_seconds."
            ) from error
        finally:
            release(worker)

    def _link(self, path: Path) -> Link:
        kind = self.target["kind"]
        if not self._remote:
            return LocalLink(self.name, kind, path, self.seconds, self._environment())
        servers = local_servers(self.key, self._threads) if self.start_local else None
        host, port = (HOST, servers.port) if servers else self._address()
        return RemoteLink(
            name=self.name,
            kind=kind,
            path=path,
            seconds=self.seconds,
            host=host,
            port=port,
            key=self.key,
            wait_seconds=self.wait_seconds,
            attempts=self.attempts,
            pause=self.pause_seconds,
            repairs=servers,
            session_seconds=self.session_seconds,
        )

    def _environment(self) -> dict[str, str]:
        return {} if self._remote else {"TVM_NUM_THREADS": str(self._threads)}

    def _address(self) -> tuple[str, int]:
        host, _, port = str(self.tracker).rpartition(":")
        if not host or not port.isdigit():
            raise ConfigError(
                f"device.tracker={self.tracker} has to be host:port, such as 127.0.0.1:9190."
            )
        return host, int(port)


def _given(mapping: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in mapping.items() if value is not None}


def _without(mapping: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in mapping.items() if name != key}


class TvmProgram:
    """A candidate on a TVM device."""

    def __init__(self, device: TvmDevice, link: Link, inputs: Sequence[TensorSpec]) -> None:
        self._device, self._link, self._inputs = device, link, inputs

    def run(self, inputs: Arrays) -> list[np.ndarray]:
        """Return the outputs for these samples, sent in chunks."""
        samples = self._samples(inputs)
        size = self._device.chunk_size
        rows: list[list[np.ndarray]] = []
        for start in range(0, len(samples), size):
            rows += self._link.call(tvm_run.run_samples, samples[start : start + size])
        return [np.concatenate(each) for each in zip(*rows, strict=True)]

    def time(self, inputs: Arrays) -> Latency:
        """Return how long the first of these samples takes, by TVM's time evaluator."""
        first = self._samples(inputs)[0]
        device = self._device
        return self._link.call(tvm_run.time_sample, first, device.warmup, device.repeats)

    def close(self) -> None:
        """Free the device."""
        self._link.close()

    def _samples(self, inputs: Arrays) -> list[tvm_run.Rows]:
        """Return each sample's inputs, in the order of the graph."""
        names = [spec.name for spec in self._inputs]
        if sorted(inputs) != sorted(names):
            raise DeviceRunError(
                f"{self._device.name} cannot run it: the inputs are {', '.join(names)}, but "
                f"{', '.join(inputs) or 'none'} came"
            )
        count = len(inputs[names[0]])
        return [
            [inputs[spec.name][at : at + 1].astype(spec.dtype, copy=False) for spec in self._inputs]
            for at in range(count)
        ]

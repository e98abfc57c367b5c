"""Devices that ONNX Runtime drives."""

import json
import platform
import tempfile
import time
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import onnxruntime
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from seqto.devices.isolated import IsolatedProgram, isolated_profile
from seqto.devices.loading import is_watched, measured, watched
from seqto.devices.providers import refuse_missing
from seqto.errors import DeviceError, DeviceImportError, DeviceRunError, DeviceTimeoutError
from seqto.freeing import owned
from seqto.graph.kernels import kernels
from seqto.graph.load import first_line, load_graph
from seqto.graph.sessions import session_opener, start_runtime
from seqto.graph.time_limits import USUAL_SECONDS, OverdueError, run_limited
from seqto.graph.timings import profile_of
from seqto.types import Arrays, Kernel, Latency, Loading, Model, Profile

_CPU_INFO = Path("/proc/cpuinfo")
_CPU_PROVIDER = "CPUExecutionProvider"
_PRECISE_KERNELS = "session.x64quantprecision"


_SETTLED_MS = 100.0
"""Fast models are timed for at least this long: ten calls of 0.1 ms are only noise."""

_PATIENCE = 100
"""Fast models are called at most this many times `repeats`."""

_PROFILED = 20
"""How many calls a profile takes at least, so that some of them were not disturbed."""


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class OnnxRuntimeDevice:
    """An execution provider of ONNX Runtime in this process."""

    name: str = "cpu"
    provider: str = _CPU_PROVIDER
    threads: Annotated[int, Field(ge=1)] = 1
    precise_kernels: Literal["auto", "on", "off"] = "auto"
    session: dict[str, str] = field(default_factory=dict)
    workers: Annotated[int, Field(ge=1)] | None = field(default=None, compare=False)
    warmup: Annotated[int, Field(ge=0)] = 2
    repeats: Annotated[int, Field(ge=1)] = 10
    options: dict[str, str] = field(default_factory=dict)
    isolated: bool = False
    seconds: Annotated[float, Field(gt=0)] = USUAL_SECONDS

    def __post_init__(self) -> None:
        """Refuse a provider that this ONNX Runtime does not have."""
        refuse_missing(self.provider, onnxruntime.get_available_providers())

    @property
    def decodes_weights(self) -> bool:
        """ONNX Runtime folds constants when it loads a model, whatever the provider."""
        return True

    @property
    def shares_prefixes(self) -> bool:
        """Whether models may be run in parts, so that what they have in common runs once."""
        # Only this provider is known to compute the same in parts as in one piece.
        return self.provider == _CPU_PROVIDER and not self.isolated

    def load(self, model: Model) -> "OnnxRuntimeProgram | IsolatedProgram":
        """Return the model in a session, in a separate process if `isolated`."""
        if self.isolated:
            return IsolatedProgram.load(replace(self, isolated=False), model, self.seconds)
        return self.load_here(model)

    def load_measured(
        self, model: Model
    ) -> "tuple[OnnxRuntimeProgram | IsolatedProgram, Loading | None]":
        """Return the model in a session, and what creating the session took."""
        return watched(lambda: self.load(model))

    def load_here(self, model: Model) -> "OnnxRuntimeProgram":
        """Return the model in a session in this process."""
        return OnnxRuntimeProgram(self._session(model, onnxruntime.SessionOptions()), self)

    def clock(self) -> float:
        """Return the seconds that what this thread loads or runs has taken so far."""
        # With one thread, all work happens in this thread. Its CPU time is what a model takes on an
        # idle machine, whatever else runs here.
        if self.threads == 1 and self.provider == _CPU_PROVIDER:
            return time.thread_time()
        return time.perf_counter()

    def kernels(self, model: Model) -> Mapping[str, Kernel]:
        """Return the kernel that ONNX Runtime runs for each node; nothing for other providers.

        Those that compile several nodes to one cannot write the model that they run.
        """
        if self.provider != _CPU_PROVIDER:
            return {}
        options = onnxruntime.SessionOptions()
        # All fusions; the level above only changes tensor layouts, and node names with them.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        with tempfile.TemporaryDirectory(prefix="seqto-kernels-") as folder:
            return kernels(model, load_graph(self._optimized(model, options, Path(folder))))

    def profile(self, model: Model, inputs: Arrays) -> Profile | None:
        """Return the time of each kernel by ONNX Runtime's profiler; None for other providers.

        They run models as one kernel, or return before their work is done.
        """
        if self.provider != _CPU_PROVIDER:
            return None
        if self.isolated:
            return isolated_profile(replace(self, isolated=False), model, inputs, self.seconds)
        options = onnxruntime.SessionOptions()
        options.enable_profiling = True
        with tempfile.TemporaryDirectory(prefix="seqto-profile-") as name:
            folder = Path(name)
            optimized = self._optimized(model, onnxruntime.SessionOptions(), folder)
            options.profile_file_prefix = str(folder / "profile")
            session = self._session(model, options)
            program = OnnxRuntimeProgram(session, self)
            for _ in range(self.warmup + max(self.repeats, _PROFILED)):
                program.run(inputs)
            events = json.loads(Path(session.end_profiling()).read_text())
            return profile_of(model, load_graph(optimized), events, self.warmup)

    def describe(self) -> Mapping[str, str]:
        """Return the runtime, the provider, the CPU and which integer kernels it uses."""
        return {
            "runtime": f"onnxruntime {onnxruntime.__version__}",
            "provider": self.provider,
            "threads": str(self.threads),
            "cpu": cpu_name(),
            "kernels": self._kernels(),
            **self._session_entries(),
            **{f"option.{name}": value for name, value in self.options.items()},
        }

    def _optimized(self, model: Model, options: onnxruntime.SessionOptions, folder: Path) -> Path:
        """Write the graph that ONNX Runtime makes of the model with these options."""
        path = folder / "optimized.onnx"
        options.optimized_model_filepath = str(path)
        self._session(model, options)
        return path

    def _session(
        self, model: Model, options: onnxruntime.SessionOptions
    ) -> onnxruntime.InferenceSession:
        options.intra_op_num_threads = self.threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        try:
            for key, value in {**self._session_entries(), **model.session}.items():
                options.add_session_config_entry(key, value)
            # No fallback: ORT would print a notice and run on the CPU instead.
            providers = [(self.provider, self.options)]
            opener = session_opener(model, options, providers, enable_fallback=0)
            if is_watched():
                start_runtime()
            session = measured(opener, self.clock)
        except Exception as error:  # ORT's own errors have no common base but Exception.
            raise DeviceImportError(
                f"{self.name} cannot load {model.name!r}: {first_line(error)}"
            ) from error
        if self.provider not in session.get_providers():
            raise DeviceError(
                f"{self.name} cannot load {model.name!r}: ONNX Runtime has {self.provider}, but it "
                f"does not start. Check its drivers, or set device.provider."
            )
        return session

    def _session_entries(self) -> dict[str, str]:
        entries = {_PRECISE_KERNELS: "1"} if self._wants_precise_kernels() else {}
        return entries | self.session

    def _wants_precise_kernels(self) -> bool:
        if self.precise_kernels == "auto":
            return is_x86() and not has_vnni()
        return self.precise_kernels == "on"

    def _kernels(self) -> str:
        if self._session_entries().get(_PRECISE_KERNELS) != "1":
            return "default"
        if is_x86() and not has_vnni():
            return f"{_PRECISE_KERNELS} (this x86 CPU has no VNNI: its int8 kernels would saturate)"
        return _PRECISE_KERNELS


class OnnxRuntimeProgram:
    """A model in an ONNX Runtime session."""

    def __init__(self, session: onnxruntime.InferenceSession, device: OnnxRuntimeDevice) -> None:
        self._session = session
        self._device = device

    def run(self, inputs: Arrays) -> list[np.ndarray]:
        """Return the outputs for these samples, in the order of the graph."""
        return owned(self._run(inputs))

    def _run(self, inputs: Arrays) -> list[np.ndarray]:
        """Return the outputs where the session has them."""
        try:
            return run_limited(self._session, None, inputs, self._device.seconds)
        except OverdueError as error:
            raise DeviceTimeoutError(
                f"{self._device.name} cannot run it: {error}. If it is only slow, raise "
                "device.seconds."
            ) from error
        except Exception as error:  # ORT's own errors have no common base but Exception.
            raise DeviceRunError(
                f"{self._device.name} cannot run it: {first_line(error)}"
            ) from error

    def time(self, inputs: Arrays) -> Latency:
        """Return the median and spread of one call's time, in the quietest run of `repeats`."""
        for _ in range(self._device.warmup):
            self._run(inputs)
        taken: list[float] = []
        repeats = self._device.repeats
        while len(taken) < repeats or (
            sum(taken) < _SETTLED_MS and len(taken) < _PATIENCE * repeats
        ):
            taken += self.times(inputs, 1)
        # Another process on the same core slows all calls for a while, so the quietest run of calls
        # shows what the model itself takes.
        starts = range(0, len(taken) - repeats + 1, repeats)
        quietest = min((taken[at : at + repeats] for at in starts), key=np.median)
        low, median, high = np.percentile(quietest, [10, 50, 90])
        return Latency(median_ms=float(median), p10_ms=float(low), p90_ms=float(high))

    @property
    def turns(self) -> int:
        """How many turns tell how long a model takes."""
        return self._device.repeats

    def times(self, inputs: Arrays, calls: int) -> list[float]:
        """Return the milliseconds of each of so many calls, not warmed up."""
        clock, taken = self._device.clock, []
        for _ in range(calls):
            start = clock()
            self._run(inputs)
            taken.append((clock() - start) * 1000)
        return taken

    def close(self) -> None:
        """Release the session."""
        del self._session


def is_x86() -> bool:
    """Return whether this is an x86-64 machine."""
    return platform.machine().lower() in ("x86_64", "amd64")


def has_vnni() -> bool:
    """Return whether the CPU multiplies 8-bit integers without saturating (AVX-VNNI, AVX512-VNNI).

    If the system does not say, the answer is no: precise kernels are then merely slower.
    """
    flags = _cpu_info("flags").split()
    return bool({"avx_vnni", "avx512_vnni", "avx512vnni", "avxvnni"} & set(flags))


def cpu_name() -> str:
    """Return the CPU's name, or its architecture if the system does not say."""
    return _cpu_info("model name") or platform.processor() or platform.machine()


def _cpu_info(field_name: str) -> str:
    try:
        lines = _CPU_INFO.read_text().splitlines()
    except OSError:
        return ""
    found = (
        line.partition(":")[2] for line in lines if line.partition(":")[0].strip() == field_name
    )
    return next(found, "").strip()

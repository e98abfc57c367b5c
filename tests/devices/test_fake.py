"""The device that fails on demand, and the processes that it ends."""

import os
import signal
import time
from typing import Any

import numpy as np
import pytest
from onnx_models import residual
from quantizable_models import mobile, random_samples
from suite_devices import DeviceSuite

from seqto.devices.fake import FakeDevice
from seqto.devices.onnxruntime import OnnxRuntimeDevice
from seqto.errors import (
    DeviceError,
    DeviceImportError,
    DeviceRunError,
    DeviceTimeoutError,
    DeviceTransportError,
)
from seqto.graph.prepare import prepare
from seqto.protocols import Quantizer
from seqto.quantizers.dynamic import DynamicQuantizer
from seqto.quantizers.static import StaticQuantizer
from seqto.types import Candidate, Model


class TestFake(DeviceSuite):
    """The conformance suite, in a process of its own."""

    @pytest.fixture
    def device(self) -> FakeDevice:
        """Return one without faults."""
        return FakeDevice()


class TestIsolatedRuntime(DeviceSuite):
    """ONNX Runtime in a process of its own passes it as well."""

    @pytest.fixture
    def device(self) -> OnnxRuntimeDevice:
        """Return the isolated one."""
        return OnnxRuntimeDevice(name="ort", isolated=True, repeats=5)


def quantized(quantizer: Quantizer, excluded: list[str] | None = None) -> Model:
    model, layers = quantizer.prepare(prepare(mobile(1)))
    ranges = quantizer.calibrate(model, random_samples(model))
    names = [layer.name for layer in layers]
    return quantizer.quantize(model, ranges, Candidate.excluding(names, excluded or []))


FAULTS: list[tuple[str, type[DeviceError], str]] = [
    ("rejects", DeviceImportError, "is not implemented"),
    ("crashes", DeviceRunError, "SIGSEGV"),
    ("hangs", DeviceTimeoutError, "no answer within"),
    ("loses", DeviceTransportError, "was lost"),
]


@pytest.mark.parametrize(("fault", "kind", "says"), FAULTS)
@pytest.mark.parametrize(
    ("name", "quantizer"),
    [
        ("QuantizeLinear", StaticQuantizer()),
        ("Gemm", StaticQuantizer()),
        ("block0_expand", StaticQuantizer()),
        ("ConvInteger", DynamicQuantizer()),
        ("block0_expand", DynamicQuantizer()),
    ],
)
def test_faults_strike_what_they_name(
    name: str, quantizer: Quantizer, fault: str, kind: type[DeviceError], says: str
) -> None:
    device = FakeDevice(**{fault: [name], "seconds": 60 if fault != "hangs" else 2})
    bad = quantized(quantizer)
    with pytest.raises(kind, match=f"^fake .*{says}"):
        program = device.load(bad)
        program.run(next(random_samples(bad).batches(1)))
    good = prepare(mobile(1))
    program = device.load(good)
    assert np.isfinite(program.run(random_samples(good).inputs)[0]).all()
    program.close()


def test_a_layer_that_is_left_in_float_does_no_harm() -> None:
    device = FakeDevice(crashes=["block0_expand"])
    model = quantized(StaticQuantizer(), ["block0_expand"])
    assert device.load(model).run(random_samples(model).inputs)


def test_a_rejected_operation_is_named() -> None:
    with pytest.raises(DeviceImportError, match="operation ConvInteger is not implemented"):
        FakeDevice(rejects=["ConvInteger"]).load(quantized(DynamicQuantizer()))


def test_a_hang_takes_as_long_as_it_may() -> None:
    device = FakeDevice(hangs=["QuantizeLinear"], seconds=2)
    program = device.load(quantized(StaticQuantizer()))
    start = time.monotonic()
    with pytest.raises(DeviceTimeoutError, match="raise device.seconds"):
        program.run(next(random_samples(prepare(mobile(1))).batches(1)))
    assert 1 <= time.monotonic() - start < 60


def test_faults_are_among_the_facts() -> None:
    facts = FakeDevice(crashes=["a", "b"]).describe()
    assert facts["crashes"] == "a,b"
    assert "rejects" not in facts


def test_this_process_survives_and_nothing_is_left() -> None:
    device: Any = FakeDevice()
    model = prepare(residual())
    program = device.load(model)
    pid = program.worker._process.pid
    assert pid != os.getpid()
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(DeviceRunError, match="its process ended by SIGKILL"):
        program.run(random_samples(model).inputs)
    del program
    assert not os.path.exists(f"/proc/{pid}")

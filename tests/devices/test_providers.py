"""Execution providers that are not there, and what to do about it."""

import pytest

from seqto.devices.onnxruntime import OnnxRuntimeDevice
from seqto.devices.providers import PACKAGES, refuse_missing
from seqto.errors import ConfigError, DeviceError
from seqto.graph.prepare import prepare

INSTALLED = ["CPUExecutionProvider", "AzureExecutionProvider"]


@pytest.mark.parametrize("provider", sorted(set(PACKAGES) - {"CPUExecutionProvider"}))
def test_a_missing_provider_lists_those_installed_and_the_remedy(provider: str) -> None:
    with pytest.raises(ConfigError) as caught:
        refuse_missing(provider, INSTALLED)
    text = str(caught.value)
    assert provider in text and "CPUExecutionProvider, AzureExecutionProvider" in text
    package = PACKAGES[provider]
    assert package in text if package else "build ONNX Runtime" in text


def test_a_wrong_name_gets_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean .*CUDAExecutionProvider"):
        refuse_missing("CudaExecutionProvider", INSTALLED)


def test_an_installed_provider_is_taken() -> None:
    refuse_missing("CPUExecutionProvider", INSTALLED)


def test_options_that_the_provider_does_not_know_crash_nothing() -> None:
    from onnx_models import residual

    device = OnnxRuntimeDevice(options={"no_such_option": "1"})
    # The CPU has none, and ONNX Runtime then ignores or refuses them: it must not crash.
    try:
        program = device.load(prepare(residual()))
    except DeviceError:
        return
    assert "CPUExecutionProvider" in program._session.get_provider_options()  # type: ignore[union-attr]
    program.close()

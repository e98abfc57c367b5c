"""TVM on this machine's CPU, for real."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx_models import build, residual, run, weight
from pydantic import ValidationError
from quantizable_models import broken, mobile, random_samples
from suite_devices import DeviceSuite

from seqto.devices import tvm_compile, tvm_schedule
from seqto.devices.helper_process import lease, release
from seqto.devices.tvm_device import TvmDevice
from seqto.errors import (
    ConfigError,
    DeviceCompileError,
    DeviceImportError,
    DeviceRunError,
    DeviceTimeoutError,
    DeviceTransportError,
)
from seqto.graph.prepare import prepare
from seqto.types import Model


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Keep compiled candidates of these tests together, and out of the user's cache."""
    folder = tmp_path_factory.getbasetemp() / "tvm"
    monkeypatch.setenv("SEQTO_CACHE", str(folder))
    yield folder


class TestTvm(DeviceSuite):
    """The conformance suite."""

    @pytest.fixture
    def device(self) -> TvmDevice:
        """Return the default."""
        return TvmDevice(repeats=5)


def test_facts_name_the_cpu_that_code_is_made_for() -> None:
    facts = TvmDevice(threads=2).describe()
    assert facts["runtime"].startswith("tvm 0.")
    assert f"mcpu={tvm_compile.host_cpu()}" in facts["target"]
    assert "num-cores=2" in facts["target"]
    assert facts["threads"] == "2"
    assert TvmDevice(scheduled=False).describe()["kernels"] == "unscheduled"


def test_a_library_is_compiled_once(own_cache: Path) -> None:
    model = prepare(mobile(1))
    TvmDevice().load(model).close()
    (library,) = [path for path in own_cache.rglob("*.so") if path in fresh(own_cache, model)]
    made = library.stat().st_mtime_ns
    TvmDevice(chunk_size=3).load(model).close()
    assert library.stat().st_mtime_ns == made


def test_loading_does_not_include_compiling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEQTO_CACHE", str(tmp_path))
    model = prepare(mobile(1))
    start = time.perf_counter()
    program, first = TvmDevice().load_measured(model)
    whole = (time.perf_counter() - start) * 1000
    program.close()
    program, again = TvmDevice().load_measured(model)
    program.close()
    assert first is not None and again is not None
    assert 0 < again.ms < 10_000 and 0 < first.ms < whole / 2
    assert (first.peak_bytes is not None) == (sys.platform == "linux")


def fresh(cache: Path, model: Model) -> set[Path]:
    """Return the library of this model by the default device."""
    return {cache / "libraries" / f"{TvmDevice()._recipe().key(model)}.so"}


def test_other_targets_have_other_libraries() -> None:
    model = prepare(residual())
    devices = (TvmDevice(), TvmDevice(scheduled=False), TvmDevice(threads=1))
    assert len({each._recipe().key(model) for each in devices}) == 3
    assert TvmDevice()._recipe().key(model) != TvmDevice()._recipe().key(prepare(mobile(1)))


@pytest.mark.parametrize("chunk", [1, 5, 12, 50])
def test_chunks_do_not_change_the_outputs(chunk: int) -> None:
    model = prepare(residual())
    samples = random_samples(model, count=12)
    (outputs,) = TvmDevice(chunk_size=chunk).load(model).run(samples.inputs)
    assert len(outputs) == 12
    wanted = run(model, dict(samples.inputs))[0]
    np.testing.assert_allclose(outputs, wanted, rtol=1e-4, atol=1e-5)


def test_all_functions_of_a_network_are_scheduled(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[bool] = []
    apply = tvm_schedule.scheduled

    def noted(func: Any, vectors: tvm_schedule.Vectors) -> Any:
        schedule = apply(func, vectors)
        found.append(schedule is not None)
        return schedule

    monkeypatch.setattr(tvm_schedule, "scheduled", noted)
    recipe = TvmDevice()._recipe()
    tvm_compile._compiled(tvm_compile._imported(prepare(mobile()), "tvm"), recipe)
    assert len(found) > 5 and all(found)


def scheduled_code(model: Model) -> str:
    """Return what TVM makes of a model, as a program."""
    import tvm

    imported = tvm_compile._imported(model, "tvm")
    target = tvm.target.Target(dict(TvmDevice()._recipe().target))
    with target:
        return str(tvm.transform.Sequential(tvm_compile.scheduled_passes(target))(imported))


def test_scheduled_code_has_vectors_and_threads() -> None:
    text = scheduled_code(prepare(mobile()))
    assert "T.vectorized" in text and "T.unroll" in text


def test_all_values_are_reduced_to_one_by_way_of_vectors() -> None:
    node = helper.make_node("ReduceMax", ["x"], ["y"], "largest", keepdims=0)
    text = scheduled_code(prepare(build([node], [], {"x": [1, 3, 8, 32]}, {"y": []})))
    assert "T.vectorized" in text


CONVOLUTIONS: dict[str, tuple[list[int], dict[str, Any]]] = {
    "pointwise": ([24, 6, 1, 1], {}),
    "pointwise_strided": ([16, 6, 1, 1], {"strides": [2, 2]}),
    "pointwise_padded": ([8, 6, 1, 1], {"pads": [1, 1, 1, 1]}),
    "depthwise": ([6, 1, 3, 3], {"group": 6, "pads": [1, 1, 1, 1]}),
    "depthwise_bare": ([6, 1, 5, 5], {"group": 6}),
    "depthwise_strided": ([6, 1, 5, 5], {"group": 6, "strides": [2, 2], "pads": [2, 2, 2, 2]}),
    "depthwise_dilated": ([6, 1, 3, 3], {"group": 6, "dilations": [2, 2], "pads": [2, 2, 2, 2]}),
    "multiplied": ([12, 1, 3, 3], {"group": 6, "pads": [1, 1, 1, 1]}),
    "grouped": ([8, 3, 3, 3], {"group": 2, "pads": [0, 1, 1, 0]}),
    "dense": ([10, 6, 3, 3], {"strides": [1, 2], "pads": [1, 1, 1, 1]}),
}


@pytest.mark.parametrize("picture", [(14, 14), (7, 7), (5, 9), (16, 32)])
def test_convolutions_of_every_kind_agree(picture: tuple[int, int]) -> None:
    nodes, weights = [], []
    for name, (shape, attributes) in CONVOLUTIONS.items():
        weights.append(weight(f"{name}_w", *shape))
        inputs = ["x", f"{name}_w"]
        nodes.append(helper.make_node("Conv", inputs, [f"{name}_c"], name, **attributes))
        nodes.append(helper.make_node("Relu", [f"{name}_c"], [name], f"{name}_relu"))
    outputs = {name: [1, None, None, None] for name in CONVOLUTIONS}
    model = prepare(build(nodes, weights, {"x": [1, 6, *picture]}, outputs))
    samples = random_samples(model, count=1)
    found = TvmDevice().load(model).run(samples.inputs)
    for name, here, there in zip(
        CONVOLUTIONS, found, run(model, dict(samples.inputs)), strict=True
    ):
        np.testing.assert_allclose(here, there, rtol=1e-4, atol=1e-5, err_msg=name)


def test_a_pointwise_convolution_copies_nothing_and_has_full_vectors() -> None:
    convolution = helper.make_node("Conv", ["x", "w"], ["y"], "conv")
    # Channels that fill no vector, so that the picture's pixels have to.
    weights, inputs = [weight("w", 20, 6, 1, 1)], {"x": [1, 6, 4, 20]}
    text = scheduled_code(prepare(build([convolution], weights, inputs, {"y": [1, 20, 4, 20]})))
    assert "pad_temp" not in text
    # Of rows of 20 values each, 16 would not fit into one evenly.
    wide = tvm_schedule.Vectors().lanes
    assert f"T.vectorized(T.int64({2 * wide}))" in text or f"T.vectorized(T.int64({wide}))" in text


def test_an_unknown_operation_is_named() -> None:
    with pytest.raises(DeviceImportError, match="NoSuchOperation"):
        TvmDevice().load(broken())


def test_the_operation_that_tvm_does_not_import_is_named() -> None:
    conv = helper.make_node("Conv", ["x", "w"], ["y"], "/block/conv")
    weights = [weight("w", 4, 5, 3, 3)]
    model = build([conv], weights, {"x": [1, 3, 8, 8]}, {"y": [1, 4, 6, 6]})
    with pytest.raises(DeviceImportError, match="Conv '/block/conv': .*channel"):
        TvmDevice().load(model)


def test_a_target_that_does_not_exist_is_an_error_of_compiling() -> None:
    with pytest.raises(DeviceCompileError, match="tvm cannot compile 'residual'"):
        TvmDevice(target={"kind": "no-such-target"}).load(prepare(residual()))


def test_a_compilation_that_takes_too_long_is_ended() -> None:
    with pytest.raises(DeviceTimeoutError, match="raise device.compile_seconds"):
        TvmDevice(compile_seconds=0.05, threads=7).load(prepare(mobile()))


def test_no_opencl_driver_is_said_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path))
    # No worker with this number of threads has started yet, with a driver perhaps.
    device = TvmDevice(name="opencl", target={"kind": "opencl"}, threads=5)
    wanted = "opencl cannot be used, it needs TVM's runtime and a driver.*scripts/opencl_runtime"
    with pytest.raises(DeviceTransportError, match=wanted):
        device.load(prepare(residual()))
    assert "scripts/opencl_runtime" in device.needs()["driver"]
    assert not TvmDevice(threads=5).needs()["driver"]


def test_code_that_this_tvm_does_not_make_is_told_first() -> None:
    assert "makes code for vulkan" in TvmDevice(target={"kind": "vulkan"}).needs()["code"]


def test_a_candidate_that_crashes_ends_alone() -> None:
    model = prepare(residual())
    program = TvmDevice().load(model)
    os.kill(program._link._worker._process.pid, signal.SIGSEGV)  # type: ignore[attr-defined]
    with pytest.raises(DeviceRunError, match="SIGSEGV"):
        program.run(random_samples(model).inputs)
    program.close()
    (outputs,) = TvmDevice().load(model).run(random_samples(model).inputs)
    assert np.isfinite(outputs).all()


def test_a_closed_program_does_not_run_nor_end_the_next_one() -> None:
    model = prepare(residual())
    first = TvmDevice().load(model)
    first.close()
    second = TvmDevice().load(model)
    with pytest.raises(DeviceRunError, match="closed"):
        first.run(random_samples(model).inputs)
    del first
    assert len(second.run(random_samples(model).inputs)) == 1


def test_a_worker_is_used_again() -> None:
    worker = lease({"SEQTO_TEST": "1"})
    release(worker)
    assert lease({"SEQTO_TEST": "1"}) is worker
    assert lease({"SEQTO_TEST": "2"}) is not worker
    worker.kill()


def test_without_tvm_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tvm_compile, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'seqto\[tvm\]'"):
        TvmDevice()


def test_without_a_linker_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tvm_compile.shutil, "which", lambda name: None)
    with pytest.raises(ConfigError, match=r"install g\+\+"):
        tvm_compile.compile_library(
            {}, prepare(residual()), TvmDevice()._recipe(), "tvm", Path("unused.so")
        )


@pytest.mark.parametrize("wrong", [{"chunk_size": 0}, {"linker": "ld"}, {"treads": 2}])
def test_wrong_settings_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        TvmDevice(**wrong)


@pytest.mark.parametrize("tracker", ["localhost", ":9190", "host:port"])
def test_a_wrong_tracker_is_named(tracker: str) -> None:
    with pytest.raises(ConfigError, match="host:port"):
        TvmDevice(tracker=tracker)


def test_a_target_needs_a_kind() -> None:
    with pytest.raises(ConfigError, match="kind"):
        TvmDevice(target={"mcpu": "auto"})

"""Devices that ONNX Runtime drives."""

import multiprocessing
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import onnxruntime
import pytest
from onnx import helper
from onnx_models import build, residual, weight
from pydantic import ValidationError
from quantizable_models import random_samples
from suite_devices import DeviceSuite

from seqto.devices import loading
from seqto.devices import onnxruntime as room
from seqto.devices.onnxruntime import OnnxRuntimeDevice, cpu_name, has_vnni, is_x86
from seqto.errors import ConfigError, DeviceError, DeviceTimeoutError
from seqto.graph.prepare import prepare
from seqto.types import Loading, Model

PRECISE = "session.x64quantprecision"

EPYC_MILAN = """\
processor\t: 0
vendor_id\t: AuthenticAMD
model\t\t: 1
model name\t: AMD EPYC 7763 64-Core Processor
flush size\t: 64
flags\t\t: fpu sse sse2 avx avx2 fma bmi1 bmi2 vaes vpclmulqdq rdpid
bugs\t\t: sysret_ss_attrs avx512_vnni_is_no_bug
"""
CASCADE_LAKE = """\
processor\t: 0
model name\t: Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz
flags\t\t: fpu sse sse2 avx avx2 avx512f avx512bw avx512vl avx512_vnni

processor\t: 1
model name\t: another
flags\t\t: fpu
"""
ALDER_LAKE = """\
model name\t: 12th Gen Intel(R) Core(TM) i7-12700
flags\t\t: fpu sse sse2 avx avx2 avx_vnni
"""
CORTEX_A72 = """\
processor\t: 0
BogoMIPS\t: 108.00
Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 cpuid
CPU implementer\t: 0x41
"""


class TestCpu(DeviceSuite):
    """The conformance suite."""

    @pytest.fixture
    def device(self) -> OnnxRuntimeDevice:
        """Return the default."""
        return OnnxRuntimeDevice(repeats=5)


@pytest.fixture
def on_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that makes this machine one with such a CPU."""

    def become(text: str, machine: str = "x86_64") -> None:
        info = tmp_path / "cpuinfo"
        info.write_text(text)
        monkeypatch.setattr(room, "_CPU_INFO", info)
        monkeypatch.setattr(platform, "machine", lambda: machine)

    return become


@pytest.mark.parametrize(
    ("text", "vnni", "name"),
    [
        (EPYC_MILAN, False, "AMD EPYC 7763 64-Core Processor"),
        (CASCADE_LAKE, True, "Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz"),
        (ALDER_LAKE, True, "12th Gen Intel(R) Core(TM) i7-12700"),
    ],
)
def test_cpu_is_read_from_the_system(on_cpu: Any, text: str, vnni: bool, name: str) -> None:
    on_cpu(text)
    assert has_vnni() == vnni
    assert cpu_name() == name


def test_cpu_of_a_system_that_does_not_tell(on_cpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    on_cpu("", machine="AMD64")
    monkeypatch.setattr(room, "_CPU_INFO", Path("no-such-folder/cpuinfo"))
    assert is_x86()
    assert not has_vnni()
    assert cpu_name()


@pytest.mark.parametrize(
    ("text", "machine", "precise"),
    [
        (EPYC_MILAN, "x86_64", True),
        (EPYC_MILAN, "AMD64", True),
        (CASCADE_LAKE, "x86_64", False),
        (ALDER_LAKE, "x86_64", False),
        # The option is one of x86: ARM's kernels do not saturate.
        (CORTEX_A72, "aarch64", False),
    ],
)
def test_precise_kernels_are_for_x86_without_vnni(
    on_cpu: Any, text: str, machine: str, precise: bool
) -> None:
    on_cpu(text, machine)
    facts = OnnxRuntimeDevice().describe()
    assert facts.get(PRECISE) == ("1" if precise else None)
    assert ("saturate" in facts["kernels"]) == precise
    assert precise or facts["kernels"] == "default"


@pytest.mark.parametrize("text", [EPYC_MILAN, CASCADE_LAKE])
@pytest.mark.parametrize(("setting", "value"), [("on", "1"), ("off", None)])
def test_precise_kernels_can_be_chosen(
    on_cpu: Any, text: str, setting: str, value: str | None
) -> None:
    on_cpu(text)
    facts = OnnxRuntimeDevice(precise_kernels=setting).describe()
    assert facts.get(PRECISE) == value
    assert (PRECISE in facts["kernels"]) == (setting == "on")
    # The reason is only given where it is one.
    assert ("no VNNI" in facts["kernels"]) == (setting == "on" and text == EPYC_MILAN)


def test_session_entries_reach_the_session_and_the_facts() -> None:
    entry = "session.intra_op.allow_spinning"
    device = OnnxRuntimeDevice(session={entry: "0"}, precise_kernels="on", threads=2)
    assert device.describe()[entry] == "0"
    assert device.describe()["threads"] == "2"
    options = device.load(prepare(residual()))._session.get_session_options()
    assert options.get_session_config_entry(entry) == "0"
    assert options.get_session_config_entry(PRECISE) == "1"
    assert options.intra_op_num_threads == 2
    assert options.inter_op_num_threads == 1


def test_a_session_entry_has_the_last_word() -> None:
    device = OnnxRuntimeDevice(precise_kernels="on", session={PRECISE: "0"})
    assert device.describe()[PRECISE] == "0"
    assert device.describe()["kernels"] == "default"


@pytest.mark.parametrize("entries", [{"session.dynamic_block_base": "nonsense"}, {"": "1"}])
def test_a_session_that_does_not_start_is_an_error_of_the_device(
    entries: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(DeviceError, match="cpu cannot load 'residual'"):
        OnnxRuntimeDevice(session=entries).load(prepare(residual()))
    # ORT prints a notice, and tries another provider, unless it is told not to.
    assert capfd.readouterr() == ("", "")


def test_a_provider_that_only_falls_back_to_the_cpu_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As with CUDA's where its libraries are missing: ORT only logs it, and runs on the CPU.
    monkeypatch.setattr(onnxruntime.InferenceSession, "get_providers", lambda session: ["Other"])
    with pytest.raises(DeviceError, match="CPUExecutionProvider, but it does not start"):
        OnnxRuntimeDevice().load(prepare(residual()))


def test_unknown_provider_gives_the_choices() -> None:
    with pytest.raises(ConfigError, match="NoSuchProvider is not .*CPUExecutionProvider"):
        OnnxRuntimeDevice(provider="NoSuchProvider")


@pytest.mark.parametrize(("settled", "wanted"), [(0.0, 2 + 7), (1e9, 2 + 700)])
def test_time_warms_up_and_repeats_until_it_settles(
    monkeypatch: pytest.MonkeyPatch, settled: float, wanted: int
) -> None:
    model = prepare(residual())
    monkeypatch.setattr("seqto.devices.onnxruntime._SETTLED_MS", settled)
    program = OnnxRuntimeDevice(warmup=2, repeats=7).load(model)
    calls: list[int] = []
    # Without the copies of outputs that others get, which are no part of a model's time.
    run = program._run
    monkeypatch.setattr(program, "_run", lambda inputs: calls.append(1) or run(inputs))
    program.time(next(random_samples(model).batches(1)))
    assert len(calls) == wanted


def test_of_a_fast_model_the_calmest_burst_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    model = prepare(residual())
    device = OnnxRuntimeDevice(warmup=0, repeats=2)
    program = device.load(model)
    # Milliseconds of one call after another: the neighbour is there, goes, and comes back.
    ticks = iter(np.cumsum([0, *[30, 0, 30, 0, 10, 0, 12, 0, 30]]) / 1000)
    monkeypatch.setattr(device, "clock", lambda: next(ticks))
    found = program.time(next(random_samples(model).batches(1)))
    assert found.median_ms == pytest.approx(11)


@pytest.mark.parametrize("isolated", [False, True])
def test_a_model_with_more_weights_takes_more_memory_to_load(isolated: bool) -> None:
    device = OnnxRuntimeDevice(isolated=isolated)

    def loading(width: int) -> Loading:
        program, found = device.load_measured(matrices(width))
        program.close()
        assert found is not None and found.ms > 0
        return found

    small, large = loading(64), loading(2048)
    if sys.platform != "linux":
        assert small.peak_bytes is large.peak_bytes is None
    else:
        assert small.peak_bytes is not None and large.peak_bytes is not None
        assert small.peak_bytes < 2**23 < 4 * 2048**2 < large.peak_bytes - small.peak_bytes


def matrices(width: int) -> Model:
    """Return a model of two square matrices."""
    weights = [weight(name, width, width) for name in ("a", "b")]
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"], "first"),
        helper.make_node("MatMul", ["h", "b"], ["y"], "second"),
    ]
    return build(nodes, weights, {"x": ["N", width]}, {"y": ["N", width]})


@pytest.mark.parametrize("isolated", [False, True])
def test_loading_is_told_without_memory_where_the_system_does_not_tell(
    isolated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "_STATUS", Path("no-such-folder/status"))
    device = OnnxRuntimeDevice(isolated=isolated)
    program, found = device.load_measured(prepare(residual()))
    program.close()
    assert found is not None and found.ms > 0
    # The other process can read what this one does not find.
    assert (found.peak_bytes is None) == (not isolated or sys.platform != "linux")


@pytest.mark.parametrize(("threads", "clock"), [(1, "thread_time"), (2, "perf_counter")])
def test_one_thread_is_measured_by_its_own_time(
    monkeypatch: pytest.MonkeyPatch, threads: int, clock: str
) -> None:
    ticks = iter(range(100))
    monkeypatch.setattr(f"seqto.devices.onnxruntime.time.{clock}", lambda: next(ticks) * 5.0)
    _, found = OnnxRuntimeDevice(threads=threads).load_measured(prepare(residual()))
    assert found is not None and found.ms == 5000


def test_the_runtime_has_started_before_a_load_is_measured() -> None:
    script = "from seqto.graph import sessions; from onnx_models import residual\n"
    script += "from seqto.devices.onnxruntime import OnnxRuntimeDevice\n"
    script += "OnnxRuntimeDevice().load(residual())\n"
    script += "assert not sessions.start_runtime.cache_info().currsize\n"
    script += "OnnxRuntimeDevice().load_measured(residual())\n"
    script += "assert sessions.start_runtime.cache_info().currsize\n"
    path = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-c", script], check=True, env=path)


def test_a_closed_program_does_not_run() -> None:
    model = prepare(residual())
    program = OnnxRuntimeDevice().load(model)
    program.close()
    with pytest.raises(DeviceError):
        program.run(random_samples(model).inputs)


def test_errors_are_one_line() -> None:
    model = prepare(residual())
    program = OnnxRuntimeDevice(name="edge").load(model)
    with pytest.raises(DeviceError) as caught:
        program.run({"x": np.zeros((1, 5, 5, 5), np.float32)})
    assert str(caught.value).startswith("edge cannot run it: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "wrong", [{"threads": 0}, {"precise_kernels": "maybe"}, {"repeats": 0}, {"provder": "CPU"}]
)
def test_wrong_settings_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        OnnxRuntimeDevice(**wrong)


LOOP = """<ir_version: 8, opset_import: ["": 17]>
endless (float[N, 4] x) => (float[N, 4] y) <int64 n = {1152921504606846976}, bool yes = {1}> {
    y = Loop <body = once (int64 i, bool go, float[N, 4] a) => (bool on, float[N, 4] b) {
        on = Identity(go)
        b = Sin(a)
    }> (n, yes, x)
}"""
"""2^60 trips."""


def test_model_that_does_not_end_is_ended(capfd: pytest.CaptureFixture[str]) -> None:
    device = OnnxRuntimeDevice(seconds=0.3)
    program = device.load(Model("endless", onnx.parser.parse_model(LOOP)))
    inputs = {"x": np.ones((2, 4), np.float32)}
    for call in (program.run, program.time):
        with pytest.raises(DeviceTimeoutError, match=r"no answer within 0.3 s.*device\.seconds"):
            call(inputs)
    assert capfd.readouterr().err == "", "ONNX Runtime says nothing besides"


def test_time_limit_holds_in_a_forked_process() -> None:
    program = OnnxRuntimeDevice(seconds=0.3).load(Model("x", onnx.parser.parse_model(LOOP)))
    inputs = {"x": np.ones((2, 4), np.float32)}
    # The thread that looks after it here is not there.
    with pytest.raises(DeviceTimeoutError):
        program.run(inputs)
    context = multiprocessing.get_context("fork")
    process = context.Process(target=_end_by_limit, args=(inputs,))
    process.start()
    process.join(20)
    still = process.is_alive()
    process.kill()
    assert not still and process.exitcode == 7


def _end_by_limit(inputs: dict[str, np.ndarray]) -> None:
    program = OnnxRuntimeDevice(seconds=0.3).load(Model("x", onnx.parser.parse_model(LOOP)))
    try:
        program.run(inputs)
    except DeviceTimeoutError:
        os._exit(7)

"""Another execution provider for real: OpenVINO's, in an environment of its own."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from environments import InstallError, environment

ROOT = Path(__file__).parents[2]

SCRIPT = """
import json, sys
import numpy as np
from onnx_models import residual
from seqto.devices.onnxruntime import OnnxRuntimeDevice

model = residual()
given = dict(x=np.random.RandomState(0).randn(4, 3, 8, 8).astype(np.float32))
found = {}
for provider in ("OpenVINOExecutionProvider", "CPUExecutionProvider"):
    options = dict(device_type="CPU") if "VINO" in provider else {}
    device = OnnxRuntimeDevice(name="ort", provider=provider, options=options, isolated=True)
    program = device.load(model)
    found[provider] = program.run(given)[0].tolist()
    assert program.time({"x": given["x"][:1]}).median_ms > 0
    program.close()
try:
    OnnxRuntimeDevice(name="ort", provider="OpenVINOExecutionProvider",
                      options=dict(device_type="NO_SUCH_DEVICE"), isolated=True).load(model)
except Exception as error:
    found["wrong"] = f"{type(error).__name__}: {error}"
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of an environment with OpenVINO's ONNX Runtime."""
    folder = tmp_path_factory.mktemp("openvino")
    try:
        # It is a whole onnxruntime, which must not get into that of the other tests.
        return environment(folder, {"onnxruntime": "onnxruntime-openvino"})
    except InstallError as error:
        pytest.skip(f"onnxruntime-openvino does not install here: {error}")


@pytest.mark.slow
def test_openvino_runs_candidates(python: Path) -> None:
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    done = subprocess.run(
        [python, "-c", SCRIPT],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    here, there = found["OpenVINOExecutionProvider"], found["CPUExecutionProvider"]
    flat = [
        abs(a - b)
        for one, other in zip(here, there, strict=True)
        for a, b in zip(one, other, strict=True)
    ]
    assert max(flat) < 1e-3
    assert found["wrong"].startswith("Device")


@pytest.mark.slow
def test_a_study_on_openvino(python: Path, tmp_path: Path) -> None:
    """Its onnxruntime is older than the others', and leaves batch norms to seqto's folding."""
    words = ["device=ort", "device.provider=OpenVINOExecutionProvider", "device.repeats=2"]
    words += ["+device.options.device_type=CPU", "dataset.evaluation_size=60", "-m"]
    words += ["search=ladder", "search.step=12", "precisions=[int8,float32]"]
    done = subprocess.run(
        [python, "-m", "seqto", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "SEQTO_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (path,) = tmp_path.glob("multirun/*/*/report.json")
    report = json.loads(path.read_text())
    assert report["study"]["tags"]["seqto.device.provider"] == "OpenVINOExecutionProvider"
    candidates = report["candidates"]
    assert [each["state"] for each in candidates] == ["COMPLETE"] * 3
    assert all(each["metrics"]["latency_ms"] > 0 for each in candidates)
    assert min(each["metrics"]["accuracy"] for each in candidates) > 0.9
    assert "models:/seqto-digits-ort-static" in done.stdout

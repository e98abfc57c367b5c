"""Another execution provider for real: OpenVINO's, in an environment of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# The package brings its own onnxruntime, which must not get into that of the other tests.
NEEDED = ["onnxruntime-openvino", "onnx", "pydantic", "platformdirs"]

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
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    found = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    pip = [found, "-m", "pip", "install", "-qq", "--disable-pip-version-check", *NEEDED]
    try:
        done = subprocess.run(pip, capture_output=True, text=True, timeout=240)
    except subprocess.TimeoutExpired:
        pytest.skip("onnxruntime-openvino could not be downloaded in time")
    if done.returncode:
        pytest.skip(f"onnxruntime-openvino does not install here: {done.stderr.strip()[-200:]}")
    return found


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

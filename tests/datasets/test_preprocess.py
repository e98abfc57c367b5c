"""Photos become what a model was trained on."""

import dataclasses

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError

from seqto.config.build import build_part
from seqto.config.compose import composed
from seqto.datasets.preprocess import ImagePreprocess, ImageTarget
from seqto.errors import ConfigError, DatasetError
from seqto.types import TensorSpec

NCHW = TensorSpec("x", (None, 3, 4, 4), "float32")


def _preprocess(**settings) -> ImagePreprocess:
    plain = {"resize": 4, "crop": 4, "scale": 1.0, "mean": [0, 0, 0], "std": [1, 1, 1]}
    return ImagePreprocess(**{**plain, **settings})


def _applied(preprocess: ImagePreprocess, image: Image.Image, shape=(None, 3, 4, 4)) -> np.ndarray:
    return preprocess.apply(image, preprocess.target(TensorSpec("x", shape, "float32")))


def _plain(color: tuple[int, int, int], size: tuple[int, int] = (6, 9)) -> Image.Image:
    return Image.new("RGB", size, color)


def test_pixels_are_scaled_then_normalized_by_channel() -> None:
    preprocess = _preprocess(scale=255.0, mean=[0.5, 0.25, 0.0], std=[0.5, 0.25, 2.0])
    found = _applied(preprocess, _plain((255, 0, 51)))
    assert found.dtype == np.float32
    expected = np.array([1.0, -1.0, 0.1], np.float32)[:, None, None]
    np.testing.assert_allclose(found, np.broadcast_to(expected, (3, 4, 4)), rtol=1e-6)


def test_efficientnet_lite_keeps_pixels_unscaled() -> None:
    found = _applied(_preprocess(mean=[127] * 3, std=[128] * 3), _plain((255, 127, 0)))
    np.testing.assert_allclose(found[:, 0, 0], [1.0, 0.0, -127 / 128])


def test_order_of_the_channels() -> None:
    found = _applied(_preprocess(color="BGR", mean=[1, 0, 0]), _plain((10, 20, 30)))
    np.testing.assert_array_equal(found[:, 0, 0], [29, 20, 10])


def test_channels_last() -> None:
    found = _applied(_preprocess(), _plain((10, 20, 30)), (None, 4, 4, 3))
    assert found.shape == (4, 4, 3)
    np.testing.assert_array_equal(found[0, 0], [10, 20, 30])


def test_one_channel_is_greyscale_with_the_average_of_the_means() -> None:
    found = _applied(_preprocess(mean=[1, 2, 6]), _plain((40, 40, 40)), (None, 1, 4, 4))
    np.testing.assert_array_equal(found, np.full((1, 4, 4), 37))


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK", "1"])
def test_images_of_any_mode_are_taken(mode: str) -> None:
    image = Image.new("RGB", (8, 8), (255, 255, 255)).convert(mode)
    np.testing.assert_array_equal(_applied(_preprocess(), image), np.full((3, 4, 4), 255))


def test_more_than_8_bits_a_channel_are_refused() -> None:
    image = Image.fromarray(np.full((8, 8), 1000, np.uint16))
    with pytest.raises(ValueError, match="more than 8 bits per channel"):
        _applied(_preprocess(), image)


def test_short_side_is_resized_and_the_centre_cropped() -> None:
    # A gradient along the long side: what is left of it tells where the crop lies.
    ramp = np.repeat(np.arange(0, 240, 2, dtype=np.uint8)[None, :], 60, axis=0)
    found = _applied(_preprocess(resize=30, crop=4), Image.fromarray(ramp))
    # 120 x 60 becomes 60 x 30, so a pixel is two of the original; columns 28 to 31 of 60 are left.
    np.testing.assert_allclose(found[0, 0], [113, 117, 121, 125], atol=1)


def test_sizes_are_exact_in_whole_numbers() -> None:
    preprocess = _preprocess(resize=256, crop=256)
    for width in range(257, 600, 7):
        found = _applied(preprocess, _plain((9, 9, 9), (width, width)), (None, 3, 256, 256))
        # A crop beyond the image's edge would be black.
        assert found.min() == 9


@pytest.mark.parametrize(("name", "sharp"), [("bilinear", False), ("bicubic", True)])
def test_interpolation_is_the_chosen_one(name: str, sharp: bool) -> None:
    edge = np.zeros((8, 8), np.uint8)
    edge[:, 3:] = 200
    found = _applied(
        _preprocess(interpolation=name, resize=16, crop=16),
        Image.fromarray(edge),
        (None, 3, 16, 16),
    )
    # Only a bicubic filter overshoots.
    assert (found.max() > 200) == sharp


def test_orientation_of_the_camera_is_respected() -> None:
    image = Image.fromarray(np.vstack([np.zeros((4, 8)), np.full((4, 8), 200)]).astype(np.uint8))
    image.getexif()[0x0112] = 3  # Upside down.
    found = _applied(_preprocess(), image)
    assert found[0, 0].min() > 100 > found[0, -1].max()


@pytest.mark.parametrize(
    ("shape", "target"),
    [
        ((None, 3, 4, 4), ImageTarget(3, 4, 4, "NCHW")),
        ((None, 4, 4, 3), ImageTarget(3, 4, 4, "NHWC")),
        ((1, 1, 4, 4), ImageTarget(1, 4, 4, "NCHW")),
        ((None, None, None, 1), ImageTarget(1, 4, 4, "NHWC")),
    ],
)
def test_layout_is_read_from_the_model(shape, target: ImageTarget) -> None:
    found = _preprocess().target(TensorSpec("x", shape, "float32"))
    assert found == target
    assert found.shape == (_applied(_preprocess(), _plain((1, 2, 3)), shape)).shape


def test_layout_that_cannot_be_read_can_be_set() -> None:
    spec = TensorSpec("x", (None, None, None, None), "float32")
    with pytest.raises(DatasetError, match="preprocess.layout=NCHW or preprocess.layout=NHWC"):
        _preprocess().target(spec)
    assert _preprocess(layout="NHWC").target(spec) == ImageTarget(3, 4, 4, "NHWC")


def test_wrong_layout_is_noticed() -> None:
    with pytest.raises(DatasetError, match="has 4 channels as NHWC.*check preprocess.layout"):
        _preprocess(layout="NHWC").target(NCHW)


def test_crop_may_come_from_the_model() -> None:
    spec = TensorSpec("x", (None, 3, 5, 7), "float32")
    preprocess = _preprocess(crop=None)
    assert preprocess.target(spec) == ImageTarget(3, 5, 7, "NCHW")
    # The crop is larger than the short side as configured: the image grows with it.
    assert _applied(preprocess, _plain((9, 9, 9)), spec.shape).min() == 9


@pytest.mark.parametrize("name", ["imagenet", "efficientnet_lite", "efficientnet_lite4"])
@pytest.mark.parametrize(("side", "whole"), [(224, 256), (240, 274), (260, 297)])
def test_presets_follow_the_graph(name: str, side: int, whole: int) -> None:
    chosen = build_part(composed([f"preprocess={name}"]), "preprocess")
    spec = TensorSpec("x", (None, side, side, 3), "float32")
    image = Image.effect_noise((640, 2 * whole), 60).convert("RGB")
    fixed = dataclasses.replace(chosen, crop=side, resize=whole)
    target = chosen.target(spec)
    assert (target.height, target.width) == (side, side)
    np.testing.assert_array_equal(chosen.apply(image, target), fixed.apply(image, target))


def test_margins_around_a_crop_that_is_no_square() -> None:
    ramp = np.repeat(np.arange(0, 160, 2, dtype=np.uint8)[None, :], 80, axis=0)
    found = _applied(_preprocess(crop=None, resize=None), Image.fromarray(ramp), (None, 3, 35, 70))
    # 80 x 80 stays as it is, as 70 is 7/8 of it: columns 5 to 74 of 80 are left.
    np.testing.assert_array_equal(found[0, 0], np.arange(10, 150, 2))


def test_crop_that_no_one_says_is_an_error() -> None:
    with pytest.raises(DatasetError, match="takes images of any size: set preprocess.crop"):
        _preprocess(crop=None).target(TensorSpec("x", (None, 3, None, None), "float32"))


def test_crop_that_the_model_does_not_take_names_the_override() -> None:
    with pytest.raises(DatasetError, match=r"takes 8 pixels where preprocess.crop=4.*crop=null"):
        _preprocess().target(TensorSpec("x", (None, 3, 8, 8), "float32"))


@pytest.mark.parametrize(
    "spec",
    [TensorSpec("x", (None, 16), "float32"), TensorSpec("x", (None, 3, 4, 4), "int64")],
)
def test_input_that_is_no_image_batch_is_refused(spec: TensorSpec) -> None:
    with pytest.raises(DatasetError) as caught:
        _preprocess().target(spec)
    assert f"model input {spec} is no image batch" in str(caught.value)


def test_crop_larger_than_the_image_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="preprocess.crop=8 is larger than preprocess.resize=4"):
        _preprocess(crop=8)


@pytest.mark.parametrize(
    "wrong",
    [{"mean": [1, 2]}, {"std": [1, 0, 1]}, {"scale": 0}, {"interpolation": "nearest"}, {"size": 3}],
)
def test_wrong_settings_are_named(wrong: dict) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        _preprocess(**wrong)


def _wide() -> Image.Image:
    """Return a photo twice as wide as high, whose left half is white."""
    pixels = np.zeros((20, 40, 3), np.uint8)
    pixels[:, :20] = 255
    return Image.fromarray(pixels)


def test_a_letterbox_has_the_whole_image_and_grey_around_it() -> None:
    plain = _preprocess(fit="letterbox", crop=None, mean=[0.0] * 3, std=[1.0] * 3, scale=1.0)
    found = plain.apply(_wide(), plain.target(TensorSpec("x", (None, 3, 8, 8), "float32")))
    assert (found[:, :2] == 114).all() and (found[:, 6:] == 114).all()
    assert found[0, 4, 0] == 255 and found[0, 4, 7] == 0


def test_a_stretched_image_fills_the_input() -> None:
    plain = _preprocess(fit="stretch", crop=None, mean=[0.0] * 3, std=[1.0] * 3, scale=1.0)
    found = plain.apply(_wide(), plain.target(TensorSpec("x", (None, 3, 8, 4), "float32")))
    assert (found[:, :, 0] == 255).all() and (found[:, :, 3] == 0).all()


def test_a_model_of_bytes_gets_the_pixels() -> None:
    target = _preprocess(fit="stretch", crop=None).target(TensorSpec("x", (None, 8, 4, 3), "uint8"))
    found = _preprocess(fit="stretch", crop=None).apply(_wide(), target)
    assert found.dtype == np.uint8 and found.shape == (8, 4, 3)
    assert found.max() == 255 and found.min() == 0

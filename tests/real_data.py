"""The real model and photos that lie beside the checkout on developers' machines."""

from pathlib import Path

import pytest

_FOLDER = Path(__file__).parents[2] / "shared" / "data"

EFFICIENTNET_LITE0 = _FOLDER / "models" / "efficientnet-lite0.onnx"
IMAGENET_SAMPLE = _FOLDER / "imagenet-sample"

requires_real_data = pytest.mark.skipif(
    not (EFFICIENTNET_LITE0.is_file() and IMAGENET_SAMPLE.is_dir()),
    reason="needs EfficientNet-Lite0 and the ImageNet sample in ../shared/data",
)

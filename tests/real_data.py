"""The real model and photos that lie beside the checkout on developers' machines."""

from pathlib import Path

import pytest

_FOLDER = Path(__file__).parents[2] / "shared" / "data"

EFFICIENTNET_LITE0 = _FOLDER / "models" / "efficientnet-lite0.onnx"
IMAGENET_SAMPLE = _FOLDER / "imagenet-sample"

PUBLISHED_RESULTS = _FOLDER.parent / "reference"

requires_published_results = pytest.mark.skipif(
    not (PUBLISHED_RESULTS / "published_candidates.csv").is_file(),
    reason="needs the papers' published results in ../shared/reference: no licence to copy them",
)
requires_real_data = pytest.mark.skipif(
    not (EFFICIENTNET_LITE0.is_file() and IMAGENET_SAMPLE.is_dir()),
    reason="needs EfficientNet-Lite0 and the ImageNet sample in ../shared/data",
)

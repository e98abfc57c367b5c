"""Every choice of every config group, and what it needs to be complete."""

import numpy as np
from onnx_models import residual

from seqto.config.paths import CONF

CHOICES = sorted(
    (path.parent.name, path.stem) for path in CONF.glob("*/*.yaml") if path.parent.name != "hydra"
)
# What a user has to say for a choice to be complete.
NEEDED = {
    "model=local": ["model.path=my.onnx"],
    "model=registry": ["model.uri=models:/name@alias"],
    "model=hub": ["model.repo=owner/name", "model.file=my.onnx"],
    "dataset=images": ["dataset.path=photos"],
    "dataset=npz": ["dataset.path=samples.npz"],
    "dataset=hf": ["dataset.path=owner/name"],
    "dataset=python": ["dataset.target=onnx_models:residual"],
    "dataset=text": ["dataset.path=lines.txt", "dataset.tokenizer=tokenizer.json"],
    "task=text": ["task.decoding=ctc"],
}
# What only a Python program can hand over.
HANDED_OVER = {
    "model=memory": {"content": residual().to_bytes()},
    "dataset=memory": {"samples": np.zeros((20, 1), np.float32)},
}

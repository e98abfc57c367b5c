"""How many samples run at a time."""

import numpy as np
import pytest
from onnx import helper, numpy_helper
from stateful_models import shaped

from seqto.measuring.together import usable_batch
from seqto.types import Model, Observed, Samples


def mixing() -> Model:
    """Return a model that compares samples with the mean of their batch."""
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[0]),
        helper.make_node("Sub", ["x", "mean"], ["y"]),
    ]
    return shaped({"x": ["batch", 4]}, {"y": ["batch", 4]}, nodes=nodes)


def traced() -> Model:
    """Return a model that was traced with one sample, which only its nodes tell."""
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["one"]),
        helper.make_node("Identity", ["one"], ["y"]),
    ]
    model = shaped({"x": ["batch", 4]}, {"y": ["batch", 4]}, nodes=nodes)
    model.proto.graph.initializer.append(numpy_helper.from_array(np.array([1, 4]), "shape"))
    return model


PLAIN = shaped({"x": ["batch", 4]}, {"y": ["batch", 4]})


@pytest.mark.parametrize(("model", "batch"), [(PLAIN, 4), (mixing(), 1), (traced(), 1)])
def test_samples_run_together_only_where_that_changes_nothing(model: Model, batch: int) -> None:
    values = np.random.RandomState(0).randn(9, 4).astype(np.float32)
    samples = Samples({"x": values}, tuple(map(str, range(9))))
    assert usable_batch(model, samples, 4, Observed({"y": 0})) == batch

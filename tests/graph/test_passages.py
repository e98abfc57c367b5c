"""Between which nodes activations pass, and how large they are."""

import numpy as np
from onnx_models import residual

from seqto.graph.passages import flow_of, passages_of
from seqto.graph.prepare import prepare


def test_passages_have_the_sizes_of_the_inputs() -> None:
    model = prepare(residual())
    inputs = {"x": np.zeros((2, 3, 8, 8), np.float32)}
    found = {each.maker: each for each in passages_of(model, inputs)}
    assert found["stem_relu"].readers == ("left", "add")
    assert found["stem_relu"].elements == 2 * 8 * 8 * 8
    assert found["flatten"].elements == 2 * 8
    # Nobody reads the model's output.
    assert "head" not in found


def test_nodes_know_their_neighbours() -> None:
    model = prepare(residual())
    passages = passages_of(model, {"x": np.zeros((1, 3, 8, 8), np.float32)})
    before, after = flow_of(model, passages)
    assert set(before["add"]) == {"right", "stem_relu"}
    assert after["stem_relu"] == ("left", "add")
    assert before["stem"] == after["head"] == ()

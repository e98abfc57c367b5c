"""What users are told of a model before they read figures."""

import numpy as np
from onnx_models import residual
from suite_quantizers import prepared_residual

from seqto.measuring.remarks import remarks_on
from seqto.quantizers.static import StaticQuantizer
from seqto.tasks.classification import Classification
from seqto.types import Outputs


class Remarking(Classification):
    """A task with something to say."""

    def remark(self, reference: Outputs) -> str:
        return f"{len(reference)} output"


def test_it_is_said_how_much_of_the_file_layers_hold() -> None:
    prepared = prepared_residual(StaticQuantizer())
    (line,) = remarks_on(
        prepared.model,
        prepared.layers,
        float(residual().size),
        Classification(),
        {"y": np.eye(3)},
    )
    assert line.startswith("layers hold ")


def test_it_is_said_where_much_of_the_file_is_never_used() -> None:
    prepared = prepared_residual(StaticQuantizer())
    whole = 4.0 * prepared.model.size
    _, line = remarks_on(prepared.model, prepared.layers, whole, Classification(), {"y": np.eye(3)})
    assert line.startswith("the float model without what it never uses is 25 % of its file")


def test_a_task_may_remark_on_its_losses() -> None:
    prepared = prepared_residual(StaticQuantizer())
    size = float(prepared.model.size)
    *_, line = remarks_on(prepared.model, prepared.layers, size, Remarking(), {"y": ()})
    assert line == "1 output"

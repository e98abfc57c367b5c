"""What users should know of a model before they read the figures of its candidates."""

from collections.abc import Sequence

from seqto.figures import in_short_percent
from seqto.graph.coverage import coverage
from seqto.protocols import Remarks, Task
from seqto.types import Layer, Model, Outputs

_SMALLER = 0.8
"""Below this share of its file, a prepared model has lost more than names."""


def remarks_on(
    model: Model, layers: Sequence[Layer], size: float, task: Task, reference: Outputs
) -> tuple[str, ...]:
    """Return the remarks on a prepared model whose file has this many bytes."""
    found = [str(coverage(model, layers))]
    if model.size < _SMALLER * size:
        found.append(
            f"the float model without what it never uses is {in_short_percent(model.size / size)} "
            "of its file, which sizes are shares of"
        )
    if isinstance(task, Remarks) and (remark := task.remark(reference)):
        found.append(remark)
    return tuple(found)

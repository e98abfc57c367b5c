"""Where models come from."""

from typing import Any, Protocol, runtime_checkable

from seqto.types import Model


class ModelSource(Protocol):
    """Where a model comes from.

    The model has the source's name, is valid ONNX, and is the same each time: whoever changes what
    `load` returned does not change what it returns next.
    """

    name: str

    def load(self) -> Model:
        """Return the model as it was published; raise ModelError if it cannot be had."""
        ...


@runtime_checkable
class Fetched(Protocol):
    """What a source offers besides whose model has to be downloaded first."""

    def fetch(self) -> Any:
        """Download the model, with a progress bar, unless it is here already."""
        ...

"""Where models come from."""

from typing import Any, Protocol, runtime_checkable

from seqto.types import Model


class ModelSource(Protocol):
    """Where a model comes from.

    The model has the source's name, is valid ONNX, and is the same each time: changing a returned
    model does not change what `load` returns next.
    """

    name: str

    def load(self) -> Model:
        """Return the model as it was published; raise ModelError if that is impossible."""
        ...


@runtime_checkable
class Fetched(Protocol):
    """Optional, for a source whose model must be downloaded first."""

    def fetch(self) -> Any:
        """Download the model, with a progress bar, unless it is already here."""
        ...

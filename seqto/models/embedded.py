"""The models that come with seqto."""

from importlib import resources

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from seqto.errors import ModelError
from seqto.graph.load import load_model
from seqto.types import Model

_FILES = resources.files("seqto.models").joinpath("data")


@dataclass(config=ConfigDict(extra="forbid"), kw_only=True)
class EmbeddedModel:
    """A model that comes with seqto, by name."""

    name: str = "digits"

    def load(self) -> Model:
        """Return the model in memory."""
        if self.name not in embedded_names():
            raise ModelError(
                f"seqto has no embedded model {self.name!r}: choose model.name from "
                f"{', '.join(embedded_names())}, or take a file with model=local."
            )
        # As a file, even if the package is imported from a zip archive.
        with resources.as_file(_FILES.joinpath(f"{self.name}.onnx")) as path:
            return load_model(path, self.name)


def embedded_names() -> tuple[str, ...]:
    """Return the names of the embedded models."""
    names = (each.name for each in _FILES.iterdir() if each.name.endswith(".onnx"))
    return tuple(sorted(name.removesuffix(".onnx") for name in names))

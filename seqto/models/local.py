"""A model from the user's file."""

from dataclasses import field
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, ConfigDict
from pydantic.dataclasses import dataclass

from seqto.graph.load import load_model
from seqto.types import Model


@dataclass(config=ConfigDict(extra="forbid"), kw_only=True)
class LocalModel:
    """The ONNX file at `path`, named after the file unless `name` is given."""

    # The file's content identifies the model, not its path or name.
    path: str = field(compare=False)
    name: Annotated[str, BeforeValidator(lambda name: name or "")] = field(
        default="", compare=False
    )

    def __post_init__(self) -> None:
        self.name = self.name or Path(self.path).stem

    def load(self) -> Model:
        """Return the model in memory."""
        return load_model(Path(self.path).expanduser(), self.name)

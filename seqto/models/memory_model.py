"""A model in a Python program's memory."""

from dataclasses import field
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict
from pydantic.dataclasses import dataclass

from seqto.errors import ConfigError
from seqto.graph.load import model_from
from seqto.types import Model


@dataclass(config=ConfigDict(extra="forbid"), kw_only=True)
class InMemoryModel:
    """An ONNX model as bytes or protobuf, named after its graph unless `name` is given."""

    # The model's content identifies it, not its name.
    name: Annotated[str, BeforeValidator(lambda name: name or "")] = field(
        default="", compare=False
    )
    content: Any = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.content is None:
            raise ConfigError(
                "model=memory has no model: it is for seqto.tune(model, ...) in Python. On the "
                "command line write model=local model.path=<file>."
            )
        self.name = model_from(self.content, self.name).name

    def load(self) -> Model:
        """Return a copy of the model."""
        return model_from(self.content, self.name)

"""A model that a Python program has in memory."""

from typing import Any

import onnx
import pytest
from onnx_models import residual
from suite_sources import ModelSourceSuite

from seqto.errors import ConfigError, ModelError
from seqto.models.memory_model import InMemoryModel
from seqto.protocols import ModelSource


class TestBytes(ModelSourceSuite):
    @pytest.fixture
    def source(self) -> ModelSource:
        return InMemoryModel(content=residual().to_bytes())


class TestProto(ModelSourceSuite):
    @pytest.fixture
    def source(self) -> ModelSource:
        return InMemoryModel(content=residual().proto, name="mine")


def test_it_is_called_as_its_graph_or_as_told() -> None:
    proto = residual().proto
    assert InMemoryModel(content=proto).name == proto.graph.name != ""
    assert InMemoryModel(content=proto, name="mine").load().name == "mine"


@pytest.mark.parametrize(
    "content", [b"", b"no model", onnx.ModelProto(), 3, "text"], ids=lambda each: repr(each)[:20]
)
def test_what_is_no_model_is_refused(content: Any) -> None:
    with pytest.raises(ModelError, match="no ONNX model but .*give the path of an .onnx file"):
        InMemoryModel(content=content)


def test_a_command_line_has_nothing_in_memory() -> None:
    with pytest.raises(ConfigError, match="model=local"):
        InMemoryModel()

"""What every model source must do; the test of each one subclasses this."""

import onnx
import pytest

from seqto.graph.load import input_specs
from seqto.protocols import ModelSource


class ModelSourceSuite:
    """Subclasses give the fixture `source`."""

    @pytest.fixture
    def source(self) -> ModelSource:
        """Return the source to test."""
        raise NotImplementedError

    def test_model_bears_the_name_of_its_source(self, source: ModelSource) -> None:
        assert source.load().name == source.name != ""

    def test_model_is_valid_onnx(self, source: ModelSource) -> None:
        onnx.checker.check_model(source.load().proto)

    def test_model_is_the_same_each_time(self, source: ModelSource) -> None:
        first = source.load()
        del first.proto.graph.node[:]
        assert source.load().to_bytes() == source.load().to_bytes()
        assert source.load().proto.graph.node

    def test_model_says_what_it_takes(self, source: ModelSource) -> None:
        specs = input_specs(source.load())
        assert specs
        assert all(spec.name and spec.dtype for spec in specs)

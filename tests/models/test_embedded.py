"""The models that come with seqto."""

import numpy as np
import pytest
from onnx_models import run
from suite_sources import ModelSourceSuite

from seqto.datasets.digits import DigitsDataset
from seqto.errors import ModelError
from seqto.graph.load import input_specs
from seqto.graph.prepare import prepare
from seqto.models.embedded import EmbeddedModel, embedded_names


class TestEmbeddedModel(ModelSourceSuite):
    """The conformance suite."""

    @pytest.fixture
    def source(self) -> EmbeddedModel:
        """Return the only embedded model."""
        return EmbeddedModel(name="digits")


def test_digits_is_the_default() -> None:
    assert EmbeddedModel().load().name == "digits"


def test_no_embedded_model_is_left_untested() -> None:
    assert embedded_names() == ("digits",)


def test_unknown_name_gives_the_choices() -> None:
    with pytest.raises(ModelError, match="no embedded model 'digit'.*digits.*model=local"):
        EmbeddedModel(name="digit").load()


def test_names_do_not_reach_other_files() -> None:
    with pytest.raises(ModelError, match="no embedded model"):
        EmbeddedModel(name="../data/digits").load()


def test_digits_reads_digits() -> None:
    model = prepare(EmbeddedModel().load())
    evaluation = DigitsDataset().load(input_specs(model)).evaluation
    (scores,) = run(model, dict(evaluation.inputs))
    assert np.mean(scores.argmax(1) == evaluation.targets) > 0.95

"""Outputs that cannot be compared are refused with their name and a remedy."""

import numpy as np
import pytest
from onnx_models import residual
from quantizable_models import random_samples, with_batch
from refused_models import detector, summed

from seqto.devices.onnxruntime import OnnxRuntimeDevice
from seqto.errors import ModelError
from seqto.measuring.outputs import outputs_of
from seqto.types import Model, Samples

DEVICE = OnnxRuntimeDevice()


def refusal(model: Model, samples: Samples, batch: int) -> str:
    """Return the one line with which the outputs are refused."""
    with pytest.raises(ModelError) as caught:
        outputs_of(model, samples, batch, DEVICE)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("batch", [1, 4])
def test_another_number_of_entries_for_each_input(batch: int) -> None:
    message = refusal(detector(), random_samples(detector()), batch)
    assert message.startswith(
        "the model's first output 'selected' has another number of entries for each input (it has "
    )
    assert message.endswith(
        "Export the model without NonMaxSuppression, with the outputs before it."
    )


def test_no_entry_at_all() -> None:
    # All scores are 0, and none of them is above the least.
    samples = Samples({"x": np.zeros((4, 8, 4), np.float32)}, tuple("abcd"))
    message = refusal(detector(), samples, 2)
    assert message.startswith("the model's first output 'selected' has no entries")


def test_a_number_for_the_whole_batch() -> None:
    message = refusal(summed(), random_samples(summed()), 4)
    assert message.startswith("the model's first output 'y' is a single number")


def test_the_last_batch_may_be_smaller() -> None:
    assert outputs_of(residual(), random_samples(residual(), 10), 4, DEVICE).shape == (10, 10)


def test_the_last_batch_may_be_filled_up() -> None:
    given = random_samples(with_batch(4), 10)
    samples = Samples(given.inputs, given.ids, fixed_batch=4)
    assert outputs_of(with_batch(4), samples, 1, DEVICE).shape == (10, 10)

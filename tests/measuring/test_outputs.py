"""Outputs of all samples, also of another length for each of them, and their file."""

from pathlib import Path

import numpy as np
import pytest
from onnx_models import observed, residual, run
from quantizable_models import random_samples, two_outputs, with_batch
from refused_models import detector, summed

from seqto.devices.onnxruntime import OnnxRuntimeDevice
from seqto.errors import ModelError
from seqto.measuring.outputs import load_outputs, outputs_of, save_outputs
from seqto.types import Observed, Samples

DEVICE = OnnxRuntimeDevice()


def test_another_number_of_entries_for_each_input() -> None:
    model = detector()
    samples = random_samples(model)
    found = outputs_of(model, samples, 1, DEVICE, Observed({"selected": None}))["selected"]
    assert isinstance(found, tuple)
    assert len({len(each) for each in found}) > 1
    for at, each in enumerate(found):
        (wanted,) = run(model, {name: array[at : at + 1] for name, array in samples.inputs.items()})
        np.testing.assert_array_equal(each, wanted)


def test_the_axis_of_the_samples_has_to_count_them() -> None:
    with pytest.raises(ModelError, match=r"'y' has the shape \[\] for 4 sample.*batch_axes"):
        outputs_of(summed(), random_samples(summed()), 4, DEVICE, observed(summed()))


def test_several_outputs_by_name_some_with_samples_elsewhere() -> None:
    model = two_outputs()
    samples = random_samples(model, 5)
    names = [each.name for each in model.proto.graph.output]
    found = outputs_of(model, samples, 2, DEVICE, Observed(dict.fromkeys(names[::-1], 0)))
    assert list(found) == names[::-1]
    for name, wanted in zip(names, run(model, dict(samples.inputs)), strict=True):
        np.testing.assert_allclose(np.asarray(found[name]), wanted, rtol=1e-4, atol=1e-5)


def test_the_last_batch_may_be_smaller() -> None:
    samples = random_samples(residual(), 10)
    found = outputs_of(residual(), samples, 4, DEVICE, observed(residual()))
    assert np.shape(found["y"]) == (10, 10)


def test_the_last_batch_may_be_filled_up() -> None:
    given = random_samples(with_batch(4), 10)
    samples = Samples(given.inputs, given.ids, fixed_batch=4)
    found = outputs_of(with_batch(4), samples, 1, DEVICE, observed(with_batch(4)))
    assert np.shape(found["y"]) == (10, 10)


def test_positions_that_fill_up_a_sequence_are_left_out() -> None:
    rows = np.arange(24.0).reshape(2, 3, 4)
    samples = Samples({}, ("a", "b"), mask=np.array([[1, 1, 0], [1, 0, 0]], bool))
    first, second = Observed({"y": 0}).entries({"y": rows}, samples, 0, 2)
    np.testing.assert_array_equal(first["y"], rows[0, :2])
    np.testing.assert_array_equal(second["y"], rows[1, :1])


def test_samples_may_be_on_another_axis() -> None:
    state = np.arange(24.0).reshape(2, 3, 4)
    samples = Samples({}, ("a", "b", "c"))
    found = Observed({"state": 1}).entries({"state": state}, samples, 0, 3)
    np.testing.assert_array_equal(found[2]["state"], state[:, 2])


def test_a_file_has_the_same_outputs(tmp_path: Path) -> None:
    random = np.random.RandomState(0)
    outputs = {
        "y": random.randn(3, 5).astype(np.float32),
        "boxes": tuple(random.randn(count, 4) for count in (2, 0, 3)),
        "ids": np.array([1, 2, 3]),
        "deep/name:0": (np.zeros((1, 2, 3)), np.ones((4,)), np.array(7.0)),
    }
    save_outputs(outputs, tmp_path / "outputs.npz")
    found = load_outputs(tmp_path / "outputs.npz", 3)
    assert set(found) == set(outputs)
    for name, entries in outputs.items():
        for wanted, each in zip(entries, found[name], strict=True):
            assert each.dtype == np.asarray(wanted).dtype
            np.testing.assert_array_equal(each, wanted)

"""From a dataset to what a model is fed with."""

import logging
from pathlib import Path

import numpy as np
import pytest
from onnx_models import run
from stateful_models import decoder, lstm, shaped

from seqto.datasets.arrays import ArrayFile
from seqto.datasets.feeding import load_splits
from seqto.datasets.generated import RandomDataset
from seqto.datasets.memory_samples import InMemorySamples
from seqto.errors import DatasetError
from seqto.graph.interface import interface_of
from seqto.types import Model, Reading, Samples, Splits


def fed(model: Model, reading: Reading | None = None, **columns: np.ndarray) -> Splits:
    """Return what the model is fed with, from these arrays."""
    dataset = InMemorySamples(samples=columns, calibration_size=10, evaluation_size=20)
    return load_splits(dataset, interface_of(model, reading))


def outputs(model: Model, samples: Samples, size: int) -> list[list[np.ndarray]]:
    """Return the model's outputs for each batch, from ONNX Runtime."""
    return [run(model, dict(batch)) for batch in samples.batches(size)]


def noise(*shape: int) -> np.ndarray:
    """Return random numbers."""
    return np.random.RandomState(0).randn(*shape).astype(np.float32)


def test_states_start_at_zero_and_have_the_batch_where_the_model_wants_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    samples = fed(lstm(), x=noise(30, 7, 4)).evaluation
    batch = next(samples.batches(4))
    assert {name: array.shape for name, array in batch.items()} == {
        "x": (4, 7, 4),
        "h0": (1, 4, 6),
        "c0": (1, 4, 6),
    }
    assert not batch["h0"].any()
    assert "'h0' float32[?, 1, 6]" in caplog.text and "start at zero" in caplog.text
    alone = np.concatenate([each[0] for each in outputs(lstm(), samples, 1)])
    together = np.concatenate([each[0] for each in outputs(lstm(), samples, 8)])
    np.testing.assert_allclose(alone, together, atol=1e-5)


def test_states_take_no_memory() -> None:
    samples = fed(lstm(hidden=6), x=noise(30, 7, 4)).evaluation
    assert samples.inputs["h0"].strides == (0, 0, 0)


def test_states_that_the_dataset_has_are_used(tmp_path: Path) -> None:
    columns = {"x": noise(30, 7, 4), "h0": noise(30, 1, 6)}
    np.savez(tmp_path / "samples.npz", **columns)
    file = ArrayFile(path=str(tmp_path / "samples.npz"), calibration_size=10, evaluation_size=20)
    for splits in (fed(lstm(), **columns), load_splits(file, interface_of(lstm()))):
        batch = next(splits.evaluation.batches(3))
        assert batch["h0"].shape == (1, 3, 6) and batch["h0"].all()
        assert not batch["c0"].any()
        # The state of a sample stays with it.
        at = [row.tobytes() for row in columns["x"]].index(batch["x"][1].tobytes())
        np.testing.assert_array_equal(batch["h0"][:, 1], columns["h0"][at])


def test_a_dataset_that_knows_no_names_has_no_states() -> None:
    dataset = RandomDataset(calibration_size=4, evaluation_size=5, free=3)
    samples = load_splits(dataset, interface_of(lstm())).evaluation
    assert samples.inputs["x"].all() and not samples.inputs["h0"].any()


def test_a_cache_is_empty_at_the_start() -> None:
    ids = np.random.RandomState(0).randint(0, 11, (30, 5))
    samples = fed(decoder(), input_ids=ids).evaluation
    assert samples.inputs["past_key_values.0.key"].shape == (20, 0, 8)
    logits = [each[0] for each in outputs(decoder(), samples, 8)]
    assert [each.shape for each in logits] == [(8, 5, 11), (8, 5, 11), (4, 5, 11)]


def test_samples_may_be_anywhere_but_first() -> None:
    model = shaped({"x": ["time", "batch", 3]}, {"y": ["time", "batch", 3]})
    columns = noise(30, 7, 3)
    batches = list(fed(model, x=columns).evaluation.batches(8))
    assert [batch["x"].shape for batch in batches] == [(7, 8, 3), (7, 8, 3), (7, 4, 3)]
    assert all(batch["x"].flags["C_CONTIGUOUS"] for batch in batches)
    known = {row.tobytes() for row in columns}
    assert all(batch["x"][:, 1].copy().tobytes() in known for batch in batches)


def test_batches_may_be_asked_for_in_another_order() -> None:
    model = shaped({"x": ["batch", 3]}, {"y": ["batch", 3]})
    samples = fed(model, x=noise(30, 3)).evaluation
    first, *others = samples.batches(8)
    found = list(samples.batches(8, [2, 0]))
    np.testing.assert_array_equal(found[0]["x"], others[-1]["x"])
    np.testing.assert_array_equal(found[1]["x"], first["x"])
    assert len(found) == 2 and len(found[0]["x"]) < 8, "the last batch is a short one"


def test_a_fixed_batch_is_filled_up_along_its_axis() -> None:
    model = shaped({"x": [7, 3, 2]}, {"y": [7, 3, 2]})
    samples = fed(model, Reading(batch_axes={"x": 1, "y": 1}), x=noise(30, 7, 2)).evaluation
    batches = [batch["x"] for batch in samples.batches(1)]
    assert [batch.shape for batch in batches] == [(7, 3, 2)] * 7
    # 20 samples are 6 batches of 3, and 2 more.
    np.testing.assert_array_equal(batches[-1][:, 2], samples.inputs["x"][-1])
    np.testing.assert_array_equal(batches[-1][:, 1], samples.inputs["x"][-1])
    np.testing.assert_array_equal(batches[-1][:, 0], samples.inputs["x"][-2])


def test_a_sample_without_a_batch_axis_is_fed_alone() -> None:
    model = shaped({"x": ["sequence", 3], "sr": []}, {"y": ["sequence", 3]})
    samples = fed(model, x=noise(30, 7, 3), sr=np.arange(30, dtype=np.float32)).evaluation
    batches = list(samples.batches(8))
    assert len(batches) == 20
    assert batches[3]["x"].shape == (7, 3) and batches[3]["sr"].shape == ()
    np.testing.assert_array_equal(batches[3]["x"], samples.inputs["x"][3])


def test_an_attention_mask_tells_which_positions_count() -> None:
    inputs = {"x": ["batch", 3], "attention_mask": ["batch", "length"]}
    mask = (np.random.RandomState(0).rand(30, 5) > 0.5).astype(np.float32)
    samples = fed(shaped(inputs, {"y": ["batch", 3]}), x=noise(30, 3), attention_mask=mask)
    evaluation = samples.evaluation
    assert evaluation.mask is not None and evaluation.mask.dtype == bool
    np.testing.assert_array_equal(evaluation.mask, evaluation.inputs["attention_mask"] == 1)
    first = evaluation.first(3)
    assert first.mask is not None and first.mask.shape == (3, 5)


@pytest.mark.parametrize("name", ["attention_mask", "input_mask:0"])
def test_targets_of_padding_are_left_out_as_its_outputs_are(name: str) -> None:
    mask = np.arange(5) < np.random.RandomState(0).randint(1, 6, (30, 1))
    labels = np.where(mask, np.arange(30)[:, None], -100)
    model = shaped({"x": ["batch", 3], name: ["batch", 5]}, {"y": ["batch", 3]})
    columns = {"x": noise(30, 3), name: mask.astype(np.float32)}
    dataset = InMemorySamples(
        samples=columns, labels=labels, calibration_size=10, evaluation_size=20
    )
    evaluation = load_splits(dataset, interface_of(model)).evaluation
    assert evaluation.mask is not None and evaluation.targets is not None
    assert [len(each) for each in evaluation.targets] == evaluation.mask.sum(axis=1).tolist()
    assert all((each != -100).all() for each in evaluation.targets)


def test_classes_of_whole_texts_stay_as_they_are() -> None:
    model = shaped({"x": ["batch", 3], "attention_mask": ["batch", 5]}, {"y": ["batch", 3]})
    columns = {"x": noise(30, 3), "attention_mask": np.ones((30, 5), np.float32)}
    dataset = InMemorySamples(
        samples=columns, labels=np.arange(30), calibration_size=10, evaluation_size=20
    )
    targets = load_splits(dataset, interface_of(model)).evaluation.targets
    assert isinstance(targets, np.ndarray) and targets.shape == (20,)


def test_a_large_fixed_batch_needs_samples_to_calibrate_on() -> None:
    model = shaped({"x": [8, 3]}, {"y": [8, 3]})
    with pytest.raises(DatasetError, match="batches of exactly 8 .* to 16 or more"):
        fed(model, x=noise(30, 3))
    assert fed(shaped({"x": [5, 3]}, {"y": [5, 3]}), x=noise(30, 3)).evaluation.fixed_batch == 5

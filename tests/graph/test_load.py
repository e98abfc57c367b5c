"""Models come into memory whole, or say why they do not."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_models import conv_bn_relu, feeds, old_model, residual, run

from seqto.errors import ModelError
from seqto.graph.load import input_specs, load_model, model_from
from seqto.types import Model, TensorSpec


def _saved(folder: Path, content: bytes) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(content)
    return path


def _with_external_data(folder: Path) -> Path:
    path = folder / "model.onnx"
    proto = residual().proto
    onnx.save(proto, path, save_as_external_data=True, location="weights", size_threshold=0)
    return path


def test_model_is_loaded_under_its_name(tmp_path: Path) -> None:
    model = conv_bn_relu()
    loaded = load_model(_saved(tmp_path, model.to_bytes()), "mine")
    assert loaded.name == "mine"
    assert loaded.to_bytes() == model.to_bytes()


def test_external_data_come_into_memory(tmp_path: Path) -> None:
    path = _with_external_data(tmp_path)
    loaded = load_model(path, "mine")
    (tmp_path / "weights").unlink()
    inputs = feeds(loaded)
    np.testing.assert_array_equal(run(loaded, inputs)[0], run(residual(), inputs)[0])


def test_format_is_not_guessed_from_the_extension(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_bytes(residual().to_bytes())
    assert load_model(path, "mine").to_bytes() == residual().to_bytes()


@pytest.mark.parametrize("content", [b"", b"<html>404</html>", residual().to_bytes()[:-100]])
def test_what_is_no_model_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(ModelError, match=r"model\.onnx is no ONNX model, or is cut short \(\d+ b"):
        load_model(_saved(tmp_path, content), "mine")


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"none\.onnx does not exist: check the path"):
        load_model(tmp_path / "none.onnx", "mine")


def test_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"is a folder: name the \.onnx file in it"):
        load_model(tmp_path, "mine")


@pytest.mark.parametrize("left", [None, 10])
def test_missing_external_data_are_named(tmp_path: Path, left: int | None) -> None:
    path, weights = _with_external_data(tmp_path), tmp_path / "weights"
    if left is None:
        weights.unlink()
    else:
        weights.write_bytes(weights.read_bytes()[:left])
    with pytest.raises(ModelError, match="put them into the same folder") as caught:
        load_model(path, "mine")
    assert "\n" not in str(caught.value)


def test_specs_are_the_inputs_as_declared() -> None:
    assert input_specs(residual()) == (TensorSpec("x", (None, 3, 8, 8), "float32"),)


def test_initializers_are_no_inputs() -> None:
    assert len(old_model().proto.graph.input) > 1
    assert [spec.name for spec in input_specs(old_model())] == ["x"]


def test_specs_of_other_types_and_absent_dimensions() -> None:
    model = _taking(helper.make_tensor_value_info("ids", TensorProto.INT64, [None, "len", 0, 7]))
    assert input_specs(model) == (TensorSpec("ids", (None, None, None, 7), "int64"),)


def test_input_that_is_no_tensor_is_refused() -> None:
    sequence = helper.make_tensor_sequence_value_info("parts", TensorProto.FLOAT, None)
    with pytest.raises(ModelError, match="Input 'parts' of the model is no tensor"):
        input_specs(_taking(sequence))


def _taking(value: onnx.ValueInfoProto) -> Model:
    return Model("any", helper.make_model(helper.make_graph([], "any", [value], [])))


def test_tensor_of_no_known_type_is_refused(tmp_path: Path) -> None:
    proto = residual().proto
    proto.graph.initializer[0].data_type = 0
    (tmp_path / "odd.onnx").write_bytes(proto.SerializeToString())
    for load in (
        lambda: load_model(tmp_path / "odd.onnx", "odd"),
        lambda: model_from(proto, "odd"),
    ):
        with pytest.raises(ModelError, match="has the type 0, which onnx .* does not know"):
            load()

"""How a model is fed, and which of its outputs are compared."""

import re
from collections.abc import Mapping

import onnx
import pytest
from onnx import TensorProto, helper
from stateful_models import Dims, decoder, lstm, shaped

from seqto.errors import ConfigError, ModelError
from seqto.graph.interface import interface_of
from seqto.graph.prepare import prepare
from seqto.types import Model, Reading

IMAGE = {"image": ["batch", 3, 8, 8]}


def axes(inputs: Mapping[str, Dims], given: dict[str, int | None] | None = None) -> object:
    """Return the axes that are found, in a model whose output and states fit."""
    outputs: dict[str, Dims] = {"y": [None, 3], "stateN": [None, None, None]}
    model = shaped(inputs, outputs)
    return dict(interface_of(model, Reading(batch_axes=given or {})).batch_axes)


@pytest.mark.parametrize(
    "name", ["batch", "batch_size", "N", "n", "bs", "B", "input_batch", "Batch"]
)
def test_the_name_of_an_axis_tells_the_batch(name: str) -> None:
    assert axes({"x": [5, name, 4]}) == {"x": 1}


@pytest.mark.parametrize("name", ["channels", "s0", "unk__0", "nodes", "num_heads", "height", None])
def test_other_names_leave_it_to_the_order(name: str | None) -> None:
    assert axes({"x": [name, 3, 4]}) == {"x": 0}


def test_the_name_that_another_input_has_first_tells_it_too() -> None:
    assert axes({"x": ["s0", 4], "other": [3, "s0"]}) == {"x": 0, "other": 1}


@pytest.mark.parametrize(
    ("x", "state", "axis", "fixed"),
    [
        (["batch", 64], [2, "batch", 128], 1, None),
        ([None, None], [2, None, 128], 1, None),
        ([1, 576], [2, 1, 128], 1, 1),
        ([None, 576], [2, 1, 128], 1, 1),
        (["s0", 64], [2, "s0", 128], 1, None),
        ([2, 64], [2, 2, 128], 1, 2),
        ([4, 64], [4, 2, 128], 0, 4),
        ([None, 64], [None, 2, 128], 0, None),
    ],
    ids=str,
)
def test_layers_of_a_state_are_not_taken_for_samples(
    x: Dims, state: Dims, axis: int, fixed: int | None
) -> None:
    interface = interface_of(shaped({"x": x, "state": state}, {"y": x, "stateN": state}))
    assert interface.batch_axes == {"x": 0, "state": axis}
    assert [spec.name for spec in interface.states] == ["state"]
    assert interface.states[0].shape[0] == fixed
    assert interface.outputs == {"y": 0}
    assert interface.fixed_batch == fixed


def test_users_may_name_the_axis() -> None:
    assert axes({"x": ["batch", 3, 4]}, {"x": 2}) == {"x": 2}
    assert axes({"x": ["batch", 3, 4]}, {"x": -1}) == {"x": 2}
    assert axes({"x": ["batch", 3, 4]}, {"x": None}) == {"x": None}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"imag": 0}, r"has 'imag' \(did you mean 'image'"),
        ({"image": 4}, "4 for 'image' .* none of its 4 axes"),
        ({"image": "first"}, "'first' for 'image'"),
        ({"y": 7}, "7 for 'y'"),
    ],
)
def test_an_axis_that_is_not_there_is_refused(given: dict[str, int | None], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        interface_of(shaped(IMAGE, {"y": ["batch", 3]}), Reading(batch_axes=given))


@pytest.mark.parametrize("shape", [[], ["sequence_length", 576], ["time", 4], ["T"]])
def test_an_input_without_an_axis_for_samples_is_fed_whole(shape: Dims) -> None:
    interface = interface_of(shaped({"x": shape}, {"y": shape}))
    assert interface.batch_axes == {"x": None}
    assert interface.outputs == {"y": None}
    assert interface.fixed_batch == 1
    assert len(interface.inputs[0].shape) == len(shape) + 1


def test_specs_have_the_batch_first() -> None:
    interface = interface_of(shaped({"x": ["time", "batch", 5]}, {"y": ["batch", 2]}))
    assert interface.inputs[0].shape == (None, None, 5)
    interface = interface_of(shaped({"x": [7, 2, 5]}, {"y": [2, 2]}), Reading(batch_axes={"x": 1}))
    assert interface.inputs[0].shape == (2, 7, 5)
    assert interface.fixed_batch == 2


@pytest.mark.parametrize(
    ("output", "axis"),
    [
        (["batch", 10], 0),
        ([4, "batch"], 1),
        ([None, 10], 0),
        (["unk__7", 10], 0),
        (["Softmaxy_dim_0", 10], 0),
        (["p2o.DynamicDimension.3", 10], 0),
        (["outputs", 10], 0),
        (["num_dets", 7], None),
        (["boxes", 7], None),
        (["batch*20", 7], None),
        (["sequence", 7], None),
        (["u0", 4], None),
        ([25, 7], None),
        ([], None),
    ],
    ids=str,
)
def test_the_axis_of_an_output(output: Dims, axis: int | None) -> None:
    interface = interface_of(shaped(IMAGE, {"y": output}))
    assert interface.outputs == {"y": axis}
    # Without an axis, it cannot be told what belongs to which sample.
    assert interface.fixed_batch == (1 if axis is None else None)


def test_another_axis_of_an_input_counts_no_samples() -> None:
    interface = interface_of(shaped({"x": ["s0", "s1"]}, {"y": ["s1", 4], "z": ["s0", 4]}))
    assert interface.outputs == {"y": None, "z": 0}


def test_an_output_that_was_traced_with_one_sample_runs_one_at_a_time() -> None:
    interface = interface_of(shaped(IMAGE, {"y": [1, 10]}))
    assert interface.outputs == {"y": 0} and interface.fixed_batch == 1


@pytest.mark.parametrize("op_type", ["NonZero", "NonMaxSuppression"])
@pytest.mark.parametrize("first", [None, "Concatdets_dim_0"])
def test_results_of_a_number_that_depends_on_values_are_no_samples(
    op_type: str, first: str | None
) -> None:
    reads = ["boxes", "scores"] if op_type == "NonMaxSuppression" else ["boxes"]
    nodes = [
        helper.make_node(op_type, reads, ["chosen"], "choose"),
        helper.make_node("Cast", ["chosen"], ["dets"], "cast", to=TensorProto.FLOAT),
    ]
    inputs = {"boxes": [1, 20, 4], "scores": [1, 2, 20]}
    model = shaped(inputs, {"dets": [first, 3]}, nodes=nodes)
    assert interface_of(model).outputs == {"dets": None}


def test_what_depends_on_sizes_alone_does_not_count() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"], "size"),
        helper.make_node("NonZero", ["shape"], ["positions"], "index"),
        helper.make_node("Gather", ["x", "positions"], ["y"], "take", axis=1),
    ]
    model = shaped({"x": [None, 4]}, {"y": [None, None, None]}, nodes=nodes)
    assert interface_of(model).outputs == {"y": 0}


def test_samples_of_a_fixed_batch_must_be_told_apart() -> None:
    with pytest.raises(ModelError, match=r"4 samples at a time.*'y' float32\[\?, 7\].*outputs"):
        interface_of(shaped({"x": [4, 8]}, {"y": ["num_dets", 7]}))
    assert interface_of(
        shaped({"x": [4, 8]}, {"y": ["num_dets", 7], "z": [4, 2]}), Reading(outputs=["z"])
    ).outputs == {"z": 0}


def test_inputs_that_disagree_are_refused() -> None:
    with pytest.raises(
        ModelError, match=r"do not agree .*'a' float32\[1, 8\] at axis 0.*batch_axes"
    ):
        interface_of(shaped({"a": [1, 8], "b": [4, 8]}, {"y": [1, 8]}))
    model = shaped({"a": [2, 8], "b": [4]}, {"y": [2, 8]})
    with pytest.raises(ModelError, match="takes 2 samples at a time.*'b' has no axis"):
        interface_of(model, Reading(batch_axes={"b": None}))
    assert interface_of(
        shaped({"a": [1, 8], "b": [4]}, {"y": [1, 8]}), Reading(batch_axes={"b": None})
    ).batch_axes == {"a": 0, "b": None}


PAIRS = [
    ("h0", "hn"),
    ("c", "cn"),
    ("h_in", "h_out"),
    ("state", "stateN"),
    ("state", "new_state"),
    ("hidden", "next_hidden"),
    ("past_key_values.0.key", "present.0.key"),
    ("past_key_values.3.decoder.value", "present.3.decoder.value"),
    ("past_0", "present_0"),
    ("cache_k_in", "cache_k_out"),
    ("cached_len_0", "new_cached_len_0"),
    ("mems", "new_mems"),
]


@pytest.mark.parametrize(("state", "output"), PAIRS)
def test_states_are_known_by_what_continues_them(state: str, output: str) -> None:
    interface = interface_of(
        shaped({"x": ["batch", 4], state: ["batch", 2, 4]}, {"y": ["batch", 4], output: [None] * 3})
    )
    assert [spec.name for spec in interface.states] == [state]
    assert list(interface.outputs) == ["y"]


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [
        (["state"], ["action"]),
        (["past_values", "past_time_features"], ["forecast"]),
        (["input_ids", "encoder_hidden_states"], ["logits"]),
        (["state", "action"], ["next_state"]),
        (["hidden_states", "attention_mask"], ["hidden_states_out"]),
        (["image", "noise"], ["image_out", "y"]),
        (["past_key_values.0.encoder.key", "input_ids"], ["present.0.decoder.key", "logits"]),
    ],
    ids=lambda each: "-".join(each),
)
def test_names_alone_make_no_state(inputs: list[str], outputs: list[str]) -> None:
    dims: Dims = ["batch", 2, 4]
    interface = interface_of(shaped(dict.fromkeys(inputs, dims), dict.fromkeys(outputs, dims)))
    assert not interface.states
    assert list(interface.outputs) == outputs


def test_a_first_state_need_not_be_continued() -> None:
    dims: Dims = [1, "batch", 4]
    model = shaped({"x": ["batch", 9], "h0": dims, "initial_c": dims}, {"y": ["batch", 3]})
    assert [spec.name for spec in interface_of(model).states] == ["h0", "initial_c"]


def test_a_cache_that_grows_is_empty_at_the_start() -> None:
    interface = interface_of(decoder(width=8))
    assert [spec.shape for spec in interface.states] == [(None, 0, 8)] * 2
    assert list(interface.outputs) == ["logits"]


@pytest.mark.parametrize(
    ("name", "output", "shape"),
    [
        ("h0", "hn", [1, "batch", "hidden"]),
        ("state", "stateN", [None, None, None]),
        ("past_0", "present_0", ["batch*heads", "past", 64]),
    ],
)
def test_a_state_whose_start_is_not_known_is_for_the_dataset(
    name: str, output: str, shape: Dims
) -> None:
    model = shaped({"x": ["batch", 4], name: shape}, {"y": ["batch", 4], output: shape})
    interface = interface_of(model)
    assert not interface.states
    assert [spec.name for spec in interface.inputs] == ["x", name]
    assert list(interface.outputs) == ["y"]


@pytest.mark.parametrize("make", [lstm, decoder])
def test_a_prepared_model_is_read_like_the_original(make: type[Model]) -> None:
    model = make()
    assert interface_of(prepare(model)) == interface_of(model)


def test_an_output_of_unknown_shape_is_taken_for_samples() -> None:
    model = shaped(IMAGE, {"y": []})
    model.proto.graph.output[0].type.tensor_type.ClearField("shape")
    interface = interface_of(model)
    assert interface.outputs == {"y": 0} and interface.fixed_batch is None


def test_an_input_of_unknown_shape_is_refused() -> None:
    model = shaped(IMAGE, {"y": ["batch", 2]})
    model.proto.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(ModelError, match="'image' has no shape"):
        interface_of(model)


def test_outputs_may_be_chosen() -> None:
    assert interface_of(lstm(), Reading(outputs=["hn", "y"])).outputs == {"hn": 1, "y": 0}


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (["boxs"], "'boxs' (did you mean 'boxes'?), which is no output"),
        ([], "model.outputs is empty: choose from boxes, scores"),
    ],
)
def test_outputs_that_are_not_there_are_refused(outputs: list[str], message: str) -> None:
    model = shaped(IMAGE, {"boxes": ["batch", 4], "scores": ["batch", 2]})
    with pytest.raises(ConfigError, match=re.escape(message)):
        interface_of(model, Reading(outputs=outputs))


def test_outputs_that_are_no_tensors_are_not_compared(caplog: pytest.LogCaptureFixture) -> None:
    model = shaped(IMAGE, {"label": ["batch"], "probabilities": []})
    sequence = helper.make_tensor_sequence_value_info("probabilities", TensorProto.FLOAT, None)
    model.proto.graph.output[1].CopyFrom(sequence)
    assert interface_of(model).outputs == {"label": 0}
    assert "probabilities are no tensors" in caplog.text
    del model.proto.graph.output[0]
    with pytest.raises(ModelError, match="no output that can be compared"):
        interface_of(model)


def test_outputs_that_no_input_changes_are_not_compared(caplog: pytest.LogCaptureFixture) -> None:
    value = helper.make_tensor("value", TensorProto.FLOAT, [2], [-0.5, -0.5])
    constant = helper.make_node("Constant", [], ["log_std"], value=value)
    noise = helper.make_node("RandomNormal", [], ["noise"], shape=[1, 2])
    outputs: dict[str, Dims] = {"action": ["batch", 3, 8, 8], "log_std": [2], "noise": [1, 2]}
    model = shaped(IMAGE, outputs, nodes=[constant, noise])
    assert set(interface_of(model).outputs) == {"action", "noise"}
    assert "log_std are the same for all samples" in caplog.text
    with pytest.raises(ConfigError, match="'log_std', which is no output .* from action, noise"):
        interface_of(model, Reading(outputs=["log_std"]))


def test_samples_that_are_compared_with_each_other_run_alone() -> None:
    # CLIP: images beside texts.
    inputs: dict[str, Dims] = {"ids": ["text_batch_size", 8], "image": ["image_batch_size", 8]}
    compared: dict[str, Dims] = {"logits_per_image": ["image_batch_size", "text_batch_size"]}
    assert interface_of(shaped(inputs, compared)).fixed_batch == 1
    alone: dict[str, Dims] = {"image_embeds": ["image_batch_size", 8]}
    assert interface_of(shaped(inputs, alone)).fixed_batch is None


def test_inputs_that_are_strings_are_refused() -> None:
    texts = shaped({"text": ["batch", 1]}, {"y": ["batch", 1]}, {"text": TensorProto.STRING})
    with pytest.raises(ModelError, match="'text' takes texts as they are.*dataset.constants"):
        interface_of(texts)


def test_reading_changes_no_model() -> None:
    model = lstm()
    before = onnx.ModelProto()
    before.CopyFrom(model.proto)
    interface_of(model, Reading(batch_axes={"x": 0}))
    assert model.proto == before

"""What ONNX Runtime's profile says of a model's nodes, on real profiles."""

import pytest
from onnx_models import residual
from quantizable_models import random_samples
from suite_quantizers import Prepared

from seqto.devices.onnxruntime import OnnxRuntimeDevice
from seqto.graph.prepare import prepare
from seqto.graph.timings import profile_of
from seqto.quantizers.dynamic import DynamicQuantizer
from seqto.quantizers.static import StaticQuantizer
from seqto.types import Model, Profile

LAYERS = ["stem", "left", "right", "head"]


def profile(model: Model) -> Profile:
    found = OnnxRuntimeDevice().profile(model, random_samples(model).inputs)
    assert found is not None
    return found


def run_by(found: Profile) -> dict[str, str]:
    """Return the operation that runs each layer."""
    named = {name.removesuffix("_quant"): each.op_type for each in found for name in each.nodes}
    return {name: named.get(name, "") for name in LAYERS}


def test_every_layer_of_a_float_model_is_found_whatever_its_layout() -> None:
    found = profile(prepare(residual()))
    assert run_by(found) == {"stem": "Conv", "left": "Conv", "right": "Conv", "head": "Gemm"}
    assert all(each.ms >= 0 for each in found) and sum(each.ms for each in found) > 0
    assert not any(each.passes_integers for each in found)


@pytest.mark.parametrize(
    ("quantizer", "wanted", "passes"),
    [(StaticQuantizer(), "QLinearConv", True), (DynamicQuantizer(), "ConvInteger", False)],
)
def test_layers_on_integers_are_found(
    quantizer: StaticQuantizer | DynamicQuantizer, wanted: str, passes: bool
) -> None:
    floating = prepare(residual())
    prepared = Prepared(quantizer, floating, random_samples(floating))
    found = profile(prepared.excluding("right"))
    assert run_by(found)["stem"] == run_by(found)["left"] == wanted
    assert run_by(found)["right"] == "Conv"
    by_node = {name: each for each in found for name in each.nodes}
    left = by_node.get("left") or by_node["left_quant"]
    # Dynamic layers make 32-bit integers, which are no activations of other layers.
    assert left.passes_integers == passes
    assert not by_node["right"].passes_integers


def test_kernels_know_whose_outputs_they_read() -> None:
    found = profile(prepare(residual()))
    names = {each.name for each in found}
    by_node = {name: each for each in found for name in each.nodes}
    named = {each.name: each for each in found}
    # Whatever lays the tensor out otherwise stands in between.
    near = [name for each in by_node["left"].reads for name in (each, *named[each].reads)]
    assert by_node["stem"].name in near
    assert all(set(each.reads) <= names for each in found)


def test_disturbed_calls_and_the_first_ones_do_not_count() -> None:
    model = prepare(residual())

    def events(durations: list[int]) -> list[dict[str, object]]:
        args = {"output_type_shape": [{"float": [1]}]}
        name = "stem_kernel_time"
        return [{"cat": "Node", "name": name, "dur": each, "args": args} for each in durations]

    (kernel,) = profile_of(model, model.proto.graph, events([9999, 10, 10, 10, 500]), 1)
    assert kernel.name == "stem" and kernel.ms == pytest.approx(0.01)
    # What ran inside another node is no kernel of the graph.
    assert profile_of(model, prepare(residual()).proto.graph, [], 0) == []


def test_other_providers_and_processes_of_their_own() -> None:
    model = prepare(residual())
    inputs = random_samples(model).inputs
    isolated = OnnxRuntimeDevice(isolated=True).profile(model, inputs)
    assert isolated is not None and run_by(isolated) == run_by(profile(model))
    device = OnnxRuntimeDevice()
    device.provider = "SomeExecutionProvider"
    assert device.profile(model, inputs) is None

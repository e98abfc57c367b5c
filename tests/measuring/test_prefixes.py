"""Models in a row that run what they have in common once."""

import functools
import itertools
import random
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from onnx import helper, numpy_helper
from onnx_models import build, observed, residual, weight
from quantizable_models import attention, mobile, random_samples, unsteady
from suite_quantizers import tried
from transformer_models import vit

from seqto.devices.onnxruntime import OnnxRuntimeDevice, OnnxRuntimeProgram
from seqto.errors import DeviceError
from seqto.graph.load import input_specs
from seqto.graph.prepare import prepare
from seqto.measuring.outputs import run_all
from seqto.measuring.prefixes import SharedRuns
from seqto.measuring.stopping import Dominated, Stop, Watch
from seqto.protocols import Quantizer
from seqto.quantizers.dynamic import DynamicQuantizer
from seqto.quantizers.static import StaticQuantizer
from seqto.quantizers.weight_only import WeightOnlyQuantizer
from seqto.types import Candidate, Entry, Model, Observed, Outputs, Samples

QUANTIZERS: dict[str, Callable[[], Quantizer]] = {
    "static": StaticQuantizer,
    "tensor": lambda: StaticQuantizer(per_channel=False),
    "signed": lambda: StaticQuantizer(activation_type="int8", quantize_bias=True),
    "undone": lambda: StaticQuantizer(keep_float=False),
    "dynamic": DynamicQuantizer,
    "weight_only": WeightOnlyQuantizer,
}


def only(outputs: Outputs) -> np.ndarray:
    """Return the single output."""
    (entries,) = outputs.values()
    return np.asarray(entries)


class CountingDevice(OnnxRuntimeDevice):
    """A CPU that counts the layers that it runs, and the programs that are not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[Model] = []
        self.layers = self.open = 0

    def load(self, model: Model) -> OnnxRuntimeProgram:
        """Return a program that tells of its runs."""
        program = super().load(model)
        self.loaded.append(model)
        self.open += 1
        count = sum(node.op_type in ("Conv", "Gemm", "MatMul") for node in model.proto.graph.node)
        run, close = program.run, program.close

        def counted(inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
            self.layers += count
            return run(inputs)

        def closed() -> None:
            self.open -= 1
            close()

        program.run, program.close = counted, closed  # type: ignore[assignment,method-assign]
        return program


def itself(model: Model) -> Model:
    return model


class Workshop:
    """A model with what its candidates are made from."""

    def __init__(self, quantizer: Quantizer, model: Model) -> None:
        self._quantizer = quantizer
        self._model, layers = quantizer.prepare(prepare(model))
        self.names = [layer.name for layer in layers]
        self.samples = random_samples(self._model, 5)
        self._ranges = quantizer.calibrate(self._model, self.samples)
        fixed = input_specs(self._model)[0].shape[0] is not None
        # Not a divisor of the samples: the last batch is a short one.
        self.batch = 2 if quantizer.batch_invariant and not fixed else 1

    def excluding(self, *names: str) -> Model:
        return self._made(Candidate.excluding(self.names, names))

    def ladder(self, order: Sequence[str]) -> list[Model]:
        return [self.excluding(*order[:count]) for count in range(len(order) + 1)]

    def drawn(self, draw: random.Random, count: int = 4) -> list[Model]:
        """Return candidates that have nothing to do with each other."""
        return [self._made(Candidate.of(self._any(draw))) for _ in range(count)]

    def walk(self, draw: random.Random, count: int = 6) -> list[Model]:
        """Return candidates that differ from the one before in one layer, or in none."""
        models, precisions = [], self._any(draw)
        for _ in range(count):
            models.append(self._made(Candidate.of(precisions)))
            precisions = {
                **precisions,
                draw.choice(self.names): draw.choice(tried(self._quantizer)),
            }
        return models

    def plain(self, model: Model) -> np.ndarray:
        program, watched = OnnxRuntimeDevice().load(model), observed(model)
        return only(run_all(program, model, self.samples, self.batch, watched))

    def shared(self, models: Sequence[Model], device: CountingDevice, **limit: int) -> SharedRuns:
        watched = observed(models[0])
        makers = [functools.partial(itself, each) for each in models]
        return SharedRuns(makers, self.samples, self.batch, device, watched, **limit)

    def _any(self, draw: random.Random) -> dict[str, str]:
        return {name: draw.choice(tried(self._quantizer)) for name in self.names}

    def _made(self, candidate: Candidate) -> Model:
        return self._quantizer.quantize(self._model, self._ranges, candidate)


@pytest.fixture(scope="module")
def workshop() -> Workshop:
    return Workshop(StaticQuantizer(), mobile())


@pytest.fixture
def device() -> Iterator[CountingDevice]:
    device = CountingDevice()
    yield device
    assert device.open == 0


@pytest.mark.parametrize(
    ("name", "source"),
    [
        *itertools.product(QUANTIZERS, [mobile, residual, attention]),
        # ONNX Runtime itself cannot load signed ones of it with int16 layers.
        *itertools.product(["static", "dynamic", "weight_only"], [vit]),
    ],
)
def test_outputs_are_the_same_to_the_bit(
    name: str, source: Callable[[], Model], device: CountingDevice
) -> None:
    workshop, draw = Workshop(QUANTIZERS[name](), source()), random.Random(0)
    order = draw.sample(workshop.names, len(workshop.names))
    lists = workshop.ladder(order), workshop.drawn(draw), workshop.walk(draw)
    for models in lists:
        runs = workshop.shared(models, device)
        for index, model in enumerate(models):
            np.testing.assert_array_equal(only(runs.outputs(index)), workshop.plain(model))
    given = [model for models in lists for model in models]
    assert any(each not in given for each in device.loaded), "or these candidates are no test"


def test_a_ladder_from_the_end_runs_the_beginning_once(
    workshop: Workshop, device: CountingDevice
) -> None:
    count, batches = len(workshop.names), 3
    models = workshop.ladder(workshop.names[::-1])
    runs = workshop.shared(models, device)
    spent = []
    for index in range(len(models)):
        before = device.layers
        only(runs.outputs(index))
        spent.append((device.layers - before) // batches)
    assert spent[0] == count
    # The excluded layer and those behind it, and one before: its output is no more quantized.
    assert all(each <= rung + 2 for rung, each in enumerate(spent) if rung)
    assert device.layers < 0.7 * count * batches * len(models)


def test_of_models_that_part_at_once_nothing_is_shared(
    workshop: Workshop, device: CountingDevice
) -> None:
    models = [workshop.excluding(), workshop.excluding(workshop.names[0])]
    runs = workshop.shared(models, device)
    for index in range(2):
        only(runs.outputs(index))
        assert runs.kept_bytes == 0
    assert device.loaded == models


def test_later_models_go_back_to_where_they_part(
    workshop: Workshop, device: CountingDevice
) -> None:
    first, middle, last = workshop.names[3], workshop.names[6], workshop.names[-1]
    models = [
        workshop.excluding(),
        workshop.excluding(last),
        workshop.excluding(middle),
        workshop.excluding(middle, last),
        workshop.excluding(first),
    ]
    runs = workshop.shared(models, device)
    for index, model in enumerate(models):
        np.testing.assert_array_equal(only(runs.outputs(index)), workshop.plain(model))
    # The very first part is run for the first model only.
    assert sum("x" in [i.name for i in each.proto.graph.input] for each in device.loaded) == 1
    assert runs.kept_bytes > 0


class Impatient(Watch):
    """Looks at the last samples first, and stops a model at once."""

    def __init__(self, samples: int) -> None:
        self.order = list(reversed(range(samples)))

    def see(self, start: int, entries: Sequence[Entry]) -> None:
        raise Dominated(Stop(f"seen from {start} on", {}))


def test_a_stopped_model_leaves_what_later_ones_begin_with(
    workshop: Workshop, device: CountingDevice
) -> None:
    *_, last = workshop.names
    stopped, later = workshop.excluding(), workshop.excluding(last)
    runs = workshop.shared([stopped, later], device)
    with pytest.raises(Dominated) as told:
        runs.outputs(0, Impatient(len(workshop.samples)))
    # Three batches of 2, 2 and 1: the last layer ran for one of them.
    assert told.value.stop.why == "seen from 4 on"
    assert device.layers == 3 * (len(workshop.names) - 1) + 1
    before = device.layers
    np.testing.assert_array_equal(only(runs.outputs(1)), workshop.plain(later))
    assert device.layers - before == 3


def test_a_stopped_model_that_shares_nothing_ends_at_once(
    workshop: Workshop, device: CountingDevice
) -> None:
    stopped, other = workshop.excluding(), workshop.excluding(workshop.names[0])
    runs = workshop.shared([stopped, other], device)
    with pytest.raises(Dominated):
        runs.outputs(0, Impatient(len(workshop.samples)))
    assert device.layers == len(workshop.names)


def test_equal_models_cost_one_run(workshop: Workshop, device: CountingDevice) -> None:
    models = [workshop.excluding("stem") for _ in range(3)]
    runs = workshop.shared(models, device)
    for index in range(3):
        np.testing.assert_array_equal(only(runs.outputs(index)), workshop.plain(models[0]))
    assert len(device.loaded) == 1


def test_without_memory_nothing_is_shared(workshop: Workshop, device: CountingDevice) -> None:
    models = [workshop.excluding(), *workshop.ladder(workshop.names[::-1])]
    runs = workshop.shared(models, device, limit=0)
    for index, model in enumerate(models):
        np.testing.assert_array_equal(only(runs.outputs(index)), workshop.plain(model))
    assert device.loaded == models


@pytest.mark.parametrize("limit", [100, 1_000, 5_000, 20_000, 100_000])
@pytest.mark.parametrize("source", [mobile, attention], ids=lambda s: s.__name__)
def test_no_more_is_kept_than_the_limit(
    source: Callable[[], Model], limit: int, device: CountingDevice
) -> None:
    # Attention in float has no place where only quantized tensors are alive.
    workshop = Workshop(StaticQuantizer(unweighted="int8"), source())
    if source is attention:
        # Its shapes do not tell how many tokens there are.
        x = np.random.RandomState(0).randn(5, 9, 16).astype(np.float32)
        inputs = {"x": x, "mask": np.ones((5, 9), np.float32)}
        workshop.samples = Samples(inputs, workshop.samples.ids)
    models = workshop.ladder(workshop.names[::-1])
    runs = workshop.shared(models, device, limit=limit)
    kept = []
    for index, model in enumerate(models):
        np.testing.assert_array_equal(only(runs.outputs(index)), workshop.plain(model))
        kept.append(runs.kept_bytes)
    assert max(kept) <= limit
    assert limit < 5_000 or max(kept) > 0


def broken(model: Model) -> Model:
    """Return the model with an operation in its middle that no device knows."""
    proto = model.copy_proto()
    node = next(each for each in proto.graph.node if each.name == "block1_depthwise")
    node.op_type = "Unheard"
    return Model(model.name, proto)


def test_a_model_that_fails_does_not_spoil_the_others(
    workshop: Workshop, device: CountingDevice
) -> None:
    last = workshop.names[-1]
    models = [
        *(workshop.excluding(), broken(workshop.excluding()), workshop.excluding(last)),
        *(broken(workshop.excluding()), workshop.excluding(last), workshop.excluding()),
    ]
    runs = workshop.shared(models, device)
    for index, model in enumerate(models):
        if index in (1, 3):
            with pytest.raises(DeviceError, match="cannot load 'mobile'.*Unheard"):
                only(runs.outputs(index))
        else:
            np.testing.assert_array_equal(only(runs.outputs(index)), workshop.plain(model))


def test_parts_that_a_device_refuses_run_as_a_whole(workshop: Workshop) -> None:
    models = workshop.ladder(workshop.names[::-1])[:3]

    class Whole(CountingDevice):
        def load(self, model: Model) -> OnnxRuntimeProgram:
            if model not in models:
                raise DeviceError("no parts")
            return super().load(model)

    device = Whole()
    runs = workshop.shared(models, device)
    for index, model in enumerate(models):
        np.testing.assert_array_equal(only(runs.outputs(index)), workshop.plain(model))
    assert device.loaded == models


def test_models_may_be_asked_for_in_any_order(workshop: Workshop, device: CountingDevice) -> None:
    models = workshop.ladder(workshop.names[::-1])
    runs = workshop.shared(models, device)
    for index in (0, 1, 4, 2, 2, 9, 0):
        np.testing.assert_array_equal(only(runs.outputs(index)), workshop.plain(models[index]))


def test_session_options_go_with_the_parts(workshop: Workshop, device: CountingDevice) -> None:
    option = {"session.disable_quant_qdq": "1"}
    plain = workshop.ladder(workshop.names[::-1])[:2]
    models = [*plain, *(Model(each.name, each.proto, option) for each in plain)]
    runs = workshop.shared(models, device)
    for index, model in enumerate(models):
        before = len(device.loaded)
        np.testing.assert_array_equal(only(runs.outputs(index)), workshop.plain(model))
        assert all(each.session == model.session for each in device.loaded[before:])
    assert len(device.loaded) == 6, "with other options nothing is in common"


def test_all_rows_are_returned_where_a_sample_has_several(device: CountingDevice) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "one_w"], ["a"], "one"),
        helper.make_node("Conv", ["a", "two_w"], ["b"], "two"),
        helper.make_node("Reshape", ["b", "rows"], ["y"], "reshape"),
    ]
    weights = [
        *(weight(f"{name}_w", 4, 4, 1, 1) for name in ("one", "two")),
        numpy_helper.from_array(np.array([-1, 4], np.int64), "rows"),
    ]
    model = build(nodes, weights, {"x": ["N", 4, 8, 8]}, {"y": ["M", 4]})
    workshop = Workshop(StaticQuantizer(), model)
    models = [workshop.excluding, workshop.excluding]
    alone = Observed({"y": None})
    runs = SharedRuns(models, workshop.samples, 1, device, alone)
    for index in range(2):
        assert only(runs.outputs(index)).shape == (5, 64, 4)
    assert len(device.loaded) == 1


def test_outputs_that_are_not_finite_are_an_error(device: CountingDevice) -> None:
    workshop = Workshop(WeightOnlyQuantizer(), unsteady("Sqrt"))
    models = [workshop.excluding(), workshop.excluding()]
    runs = workshop.shared(models, device)
    for index in range(2):
        with pytest.raises(DeviceError, match="not finite"):
            only(runs.outputs(index))

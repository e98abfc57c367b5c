"""What every device must do; the test of each one subclasses this."""

import math

import numpy as np
import pytest
from onnx_models import residual, run
from quantizable_models import broken, random_samples, two_outputs

from seqto.errors import DeviceError
from seqto.graph.prepare import prepare
from seqto.protocols import Device, MeasuresLoading, Profiles, TakesTurns
from seqto.types import Model, Samples


class DeviceSuite:
    """Subclasses give the fixture `device`."""

    @pytest.fixture
    def device(self) -> Device:
        """Return the device to test."""
        raise NotImplementedError

    @pytest.fixture
    def model(self) -> Model:
        """Return a model to run."""
        return prepare(residual())

    @pytest.fixture
    def samples(self, model: Model) -> Samples:
        """Return what the model takes."""
        return random_samples(model)

    def test_says_what_it_is_in_short_facts(self, device: Device) -> None:
        assert device.name
        facts = device.describe()
        assert facts["runtime"]
        assert all(isinstance(text, str) for pair in facts.items() for text in pair)
        assert all(len(text) < 200 for text in facts.values())

    def test_facts_are_the_same_each_time(self, device: Device) -> None:
        assert device.describe() == device.describe()

    def test_outputs_are_the_models(self, device: Device, model: Model, samples: Samples) -> None:
        program = device.load(model)
        (outputs,) = program.run(samples.inputs)
        program.close()
        np.testing.assert_allclose(
            outputs, run(model, dict(samples.inputs))[0], rtol=1e-4, atol=1e-5
        )

    def test_outputs_are_in_the_order_of_the_graph(self, device: Device) -> None:
        model = prepare(two_outputs())
        first, second = device.load(model).run(random_samples(model).inputs)
        np.testing.assert_array_equal(first, -second)
        np.testing.assert_allclose(
            first, run(model, dict(random_samples(model).inputs))[0], atol=1e-5
        )

    def test_same_inputs_give_the_same_outputs(
        self, device: Device, model: Model, samples: Samples
    ) -> None:
        program = device.load(model)
        np.testing.assert_array_equal(program.run(samples.inputs), program.run(samples.inputs))
        np.testing.assert_array_equal(
            program.run(samples.inputs), device.load(model).run(samples.inputs)
        )

    def test_loading_leaves_the_model_as_it_is(self, device: Device, model: Model) -> None:
        before = model.to_bytes()
        device.load(model).close()
        assert model.to_bytes() == before

    def test_two_programs_do_not_disturb_each_other(
        self, device: Device, model: Model, samples: Samples
    ) -> None:
        first, second = device.load(model), device.load(prepare(two_outputs()))
        wanted = first.run(samples.inputs)
        second.close()
        np.testing.assert_array_equal(first.run(samples.inputs), wanted)

    def test_loading_is_measured_on_the_way(
        self, device: Device, model: Model, samples: Samples
    ) -> None:
        if not isinstance(device, MeasuresLoading):
            pytest.skip(f"{device.name} does not tell what loading takes")
        program = device.load(model)
        wanted = program.run(samples.inputs)
        program.close()
        program, loading = device.load_measured(model)
        np.testing.assert_array_equal(program.run(samples.inputs), wanted)
        program.close()
        if loading is not None:
            assert 0 < loading.ms < 60_000
            assert loading.peak_bytes is None or 0 <= loading.peak_bytes < math.inf

    def test_latency_is_a_spread_around_its_median(
        self, device: Device, model: Model, samples: Samples
    ) -> None:
        latency = device.load(model).time(next(samples.batches(1)))
        assert 0 < latency.p10_ms <= latency.median_ms <= latency.p90_ms < 10_000

    def test_programs_that_take_turns_time_each_call(
        self, device: Device, model: Model, samples: Samples
    ) -> None:
        first = device.load(model)
        if not isinstance(first, TakesTurns):
            # Such a device may hold one program only.
            first.close()
            pytest.skip(f"{device.name} does not time single calls")
        second = device.load(prepare(two_outputs()))
        assert isinstance(second, TakesTurns) and first.turns >= 1
        given = next(samples.batches(1)), next(random_samples(prepare(two_outputs())).batches(1))
        for _ in range(2):
            for program, inputs in zip((first, second), given, strict=True):
                times = program.times(inputs, 3)
                assert len(times) == 3 and all(0 < each < 10_000 for each in times)
        first.close()
        second.close()

    def test_a_profile_names_the_models_nodes(
        self, device: Device, model: Model, samples: Samples
    ) -> None:
        if not isinstance(device, Profiles):
            pytest.skip(f"{device.name} does not tell how long parts of a model take")
        profile = device.profile(model, next(samples.batches(1)))
        if profile is not None:
            nodes = {node.name for node in model.proto.graph.node}
            assert {name for each in profile for name in each.nodes} <= nodes
            assert {"stem", "head"} <= {name for each in profile for name in each.nodes}
            assert 0 < sum(each.ms for each in profile) < 10_000

    def test_a_model_it_cannot_load_is_named(self, device: Device) -> None:
        with pytest.raises(DeviceError, match=f"{device.name} cannot load 'broken'"):
            device.load(broken())
        if isinstance(device, MeasuresLoading):
            with pytest.raises(DeviceError, match=f"{device.name} cannot load 'broken'"):
                device.load_measured(broken())

    def test_inputs_it_cannot_run_are_an_error_of_the_device(
        self, device: Device, model: Model, samples: Samples
    ) -> None:
        program = device.load(model)
        narrow = {name: array[..., :-1] for name, array in samples.inputs.items()}
        for inputs in (narrow, {"unknown": narrow["x"]}, {}):
            with pytest.raises(DeviceError, match=f"{device.name} cannot run"):
                program.run(inputs)

"""Latencies measured in turns."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from onnx_models import residual
from quantizable_models import random_samples

from seqto.devices.onnxruntime import OnnxRuntimeDevice
from seqto.errors import DeviceTransportError
from seqto.measuring import turns
from seqto.measuring.turns import quietest, time_after, time_beside, time_in_turns
from seqto.types import Arrays, Kernel, Latency, Model

_WARM = 1
"""How many calls come before the turns of a program that is not fast."""


@dataclass
class Drifting:
    """A device that becomes slower with every call, and says who was called."""

    name: str = "drifting"
    ms: float = 10.0
    """How long a call takes, for each letter of the model's name."""
    holds: bool = True
    disturbed: frozenset[int] = frozenset()
    """The calls that take ten times as long."""
    drift: float = 0.1
    calls: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    most_loaded: int = 0

    def load(self, model: Model) -> "_Program":
        self.loaded.append(model.name)
        self.most_loaded = max(self.most_loaded, len(self.loaded))
        return (_Turning if self.holds else _Program)(self, model.name)

    def describe(self) -> dict[str, str]:
        return {"runtime": "none"}

    def kernels(self, model: Model) -> dict[str, Kernel]:
        return {}

    def called(self, name: str) -> float:
        """Return how long this call of a model takes: longer than all before, and its name."""
        self.calls.append(name)
        ms = self.ms * len(name) * (1 + self.drift) ** len(self.calls)
        return 10 * ms if len(self.calls) in self.disturbed else ms


@dataclass
class _Program:
    device: Drifting
    name: str

    def run(self, inputs: Arrays) -> list[np.ndarray]:
        raise NotImplementedError

    def time(self, inputs: Arrays) -> Latency:
        ms = self.device.called(self.name)
        return Latency(ms, ms * 0.9, ms * 1.1)

    def close(self) -> None:
        self.device.loaded.remove(self.name)


class _Turning(_Program):
    turns = 5

    def times(self, inputs: Arrays, calls: int) -> list[float]:
        return [self.device.called(self.name) for _ in range(calls)]


def models(*names: str) -> list[Model]:
    proto = residual().proto
    # Their digests differ.
    return [Model(name, proto, session={"name": name}) for name in names]


def test_models_are_called_in_turns_and_a_drift_of_the_machine_does_not_count() -> None:
    device = Drifting()
    (standard, *others) = models("float", "a", "bb", "ccc")
    found, own = time_in_turns(others, standard, {}, device)
    round_ = ["a", "bb", "float", "ccc", "float"]
    assert device.calls[_WARM * 4 :][:11] == ["float", *round_, *round_]
    assert device.loaded == []
    # In the first and in the last turn each took the same share of the standard's time.
    shares = [each.median_ms / own.median_ms for each in found]
    assert shares == pytest.approx([1 / 5, 2 / 5, 3 / 5])
    assert found[0].p10_ms == pytest.approx(found[0].median_ms) == found[0].p90_ms


def test_turns_that_were_disturbed_show_in_the_spread_and_not_in_the_median() -> None:
    warm = _WARM * 2
    device = Drifting(drift=0.0, disturbed=frozenset({warm + 4, warm + 6}))
    standard, other = models("float", "b")
    (found,), own = time_in_turns([other], standard, {}, device)
    assert found.median_ms == pytest.approx(10.0) and own.median_ms == pytest.approx(50.0)
    assert found.p90_ms > 10.5 or found.p10_ms < 9.5


def test_turns_go_on_while_they_disagree() -> None:
    calm, noisy = Drifting(drift=0.0), Drifting(drift=0.0, disturbed=frozenset(range(0, 999, 4)))
    for device in (calm, noisy):
        time_in_turns(models("b"), models("float")[0], {}, device)
    taken = [device.calls.count("b") - _WARM for device in (calm, noisy)]
    assert taken == [turns._LEAST_TURNS, turns._PATIENCE * _Turning.turns]


def test_fast_models_are_called_several_times_a_turn() -> None:
    model = residual()
    device = OnnxRuntimeDevice(repeats=3)
    (found,), own = time_in_turns([model], model, next(random_samples(model).batches(1)), device)
    assert 0.5 < found.median_ms / own.median_ms < 2.0

    calls: list[int] = []

    class Fast(_Turning):
        def times(self, inputs: Arrays, calls_: int) -> list[float]:
            calls.append(calls_)
            return [0.01] * calls_

    drifting = Drifting()
    drifting.load = lambda model: Fast(drifting, drifting.loaded.append("x") or "x")  # type: ignore
    time_in_turns([model], model, {}, drifting)
    assert calls[-1] == turns._TURN_MS / 0.01


def test_a_device_that_cannot_hold_several_models_loads_them_again() -> None:
    device = Drifting(holds=False)
    (standard, *others) = models("float", "a", "b")
    found, own = time_in_turns(others, standard, {}, device)
    assert device.calls[:3] == device.calls[3:] == ["float", "a", "b"]
    assert device.most_loaded == 1 and device.loaded == []
    assert found[0].median_ms == pytest.approx(10 * 1.1**2) and own.median_ms == pytest.approx(
        50 * 1.1
    )


def test_groups_that_do_not_fit_into_memory_are_compared_by_the_standard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device = Drifting()
    (standard, *others) = models("float", "a", "b")
    monkeypatch.setattr(turns, "_AT_ONCE", 4 * standard.size)
    found, own = time_in_turns(others, standard, {}, device)
    assert device.most_loaded == 2
    # In the second group all was slower, the standard too.
    assert [each.median_ms / own.median_ms for each in found] == pytest.approx([0.2, 0.2])


@pytest.mark.parametrize("fits", [True, False])
def test_a_loaded_model_has_its_turns_beside_the_standard_if_both_fit(
    fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Drifting()
    standard, model = models("float", "b")
    monkeypatch.setattr(turns, "_AT_ONCE", (4 if fits else 3) * standard.size)
    program = device.load(model)
    found = time_beside(program, model, standard, {}, device)
    assert device.loaded == ["b"] and device.most_loaded == (2 if fits else 1)
    if fits:
        assert found.standard_ms is not None
        assert found.latency.median_ms == pytest.approx(found.standard_ms / 5)
    else:
        assert found.standard_ms is None and device.calls == ["b"]


def test_the_standard_itself_takes_what_the_standard_takes() -> None:
    device = Drifting()
    (standard,) = models("float")
    found = time_beside(device.load(standard), standard, standard, {}, device)
    assert found.latency.median_ms == found.standard_ms
    assert device.calls == device.loaded == ["float"]


def test_a_latency_alone_is_compared_with_the_standard_right_after_it() -> None:
    device = Drifting(holds=False, drift=0.0)
    alone = Latency(10.0, 9.0, 12.0)
    found = time_after(alone, models("float")[0], {}, device)
    assert found.standard_ms == 50.0 and found.latency.median_ms == 10.0
    # As far apart as both allow: the standard took 45 to 55 ms.
    assert found.latency.p10_ms == pytest.approx(9.0 * 50 / 55)
    assert found.latency.p90_ms == pytest.approx(12.0 * 50 / 45)


def test_a_device_that_is_gone_for_the_standard_leaves_the_latency_as_it_is() -> None:
    def lost(model: Model) -> _Program:
        raise DeviceTransportError("gone")

    device = Drifting(holds=False)
    device.load = lost  # type: ignore[method-assign]
    alone = Latency(10.0, 9.0, 12.0)
    assert time_after(alone, models("float")[0], {}, device) == turns.Compared(alone)


def test_a_model_by_itself_is_timed_until_it_was_quiet_once() -> None:
    device = Drifting(holds=False, drift=0.0, disturbed=frozenset({1, 3}))
    assert quietest(device.load(models("b")[0]), {}).median_ms == 10.0

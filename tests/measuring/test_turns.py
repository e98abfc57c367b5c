"""Latencies measured in turns."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from onnx_models import residual

from seqto.measuring import turns
from seqto.measuring.turns import ROUNDS, time_in_turns
from seqto.types import Arrays, Kernel, Latency, Model


@dataclass
class Drifting:
    """A device that becomes slower with every turn, and says who had his."""

    name: str = "drifting"
    shares_prefixes: bool = True
    calls: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    most_loaded: int = 0

    def load(self, model: Model) -> "_Program":
        self.loaded.append(model.name)
        self.most_loaded = max(self.most_loaded, len(self.loaded))
        return _Program(self, model.name)

    def describe(self) -> dict[str, str]:
        return {"runtime": "none"}

    def kernels(self, model: Model) -> dict[str, Kernel]:
        return {}


@dataclass
class _Program:
    device: Drifting
    name: str

    def run(self, inputs: Arrays) -> list[np.ndarray]:
        raise NotImplementedError

    def time(self, inputs: Arrays) -> Latency:
        self.device.calls.append(self.name)
        ms = len(self.name) * (1 + 0.1 * len(self.device.calls))
        return Latency(ms, ms * 0.9, ms * 1.1)

    def close(self) -> None:
        self.device.loaded.remove(self.name)


def models(*names: str) -> list[Model]:
    proto = residual().proto
    return [Model(name, proto) for name in names]


def test_each_has_its_turn_before_one_has_two() -> None:
    device = Drifting()
    (standard, *others) = models("float", "a", "b")
    found, own = time_in_turns(others, standard, {}, device)
    assert device.calls == ["float", "a", "b"] * ROUNDS
    # The quietest turn of each: the first.
    assert own.median_ms == pytest.approx(5 * 1.1)
    assert [each.median_ms for each in found] == pytest.approx([1.2, 1.3])
    assert device.loaded == []


def test_a_device_that_cannot_hold_several_models_loads_them_again() -> None:
    device = Drifting(shares_prefixes=False)
    (standard, *others) = models("float", "a", "b")
    time_in_turns(others, standard, {}, device)
    assert device.calls[:3] == device.calls[3:] == ["float", "a", "b"]
    assert device.most_loaded == 1 and device.loaded == []


def test_groups_that_do_not_fit_into_memory_are_compared_by_the_standard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    device = Drifting()
    (standard, *others) = models("float", "a", "b")
    monkeypatch.setattr(turns, "_AT_ONCE", 4 * standard.size)
    found, own = time_in_turns(others, standard, {}, device)
    assert device.calls == ["float", "a"] * ROUNDS + ["float", "b"] * ROUNDS
    # In the second group all was slower, the standard too.
    slower = (1 + 0.1 * 7) / (1 + 0.1 * 1)
    assert found[1].median_ms == pytest.approx((1 + 0.1 * 8) / slower)
    assert own.median_ms == pytest.approx(5 * 1.1)

"""Full quantizations compared, and which of them a search goes on from."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto
from quantizable_models import weights_in
from tiny_studies import Lab, ProbedDevice

from seqto.devices.onnxruntime import OnnxRuntimeDevice, has_vnni, is_x86
from seqto.errors import DeviceError, DeviceTransportError
from seqto.measuring.subject import Subject
from seqto.metrics.harm import Divergence
from seqto.quantizers.auto import AutoQuantizer
from seqto.study import schemes
from seqto.study.schemes import SchemeResult, as_table, choose, compare_schemes
from seqto.types import INT8, RUINED, Candidate, Latency, Model

SAMPLES = 6

NO_VNNI = pytest.mark.skipif(
    not is_x86() or has_vnni(), reason="the integer kernels of this CPU do not saturate"
)


class TimedDevice(ProbedDevice):
    """Takes half as long for models with uint8 weights, and no time of the test's own."""

    def latency(self, model: Model) -> float | None:
        """Return what the model takes, in milliseconds."""
        return 1.0 if weights_in(model, TensorProto.UINT8) else 2.0


def timed_lab(folder: Path) -> Lab:
    """Return a lab with a quantizer of all schemes, and latencies that are always the same."""
    return Lab.at(folder, device=TimedDevice(), quantizer=AutoQuantizer(samples=SAMPLES))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return timed_lab(tmp_path_factory.mktemp("lab"))


def compared(
    lab: Lab, quantizer: AutoQuantizer | None = None, subject: Subject | None = None
) -> list[SchemeResult]:
    quantizer = quantizer or AutoQuantizer(samples=SAMPLES)
    return compare_schemes(quantizer, subject or lab.subject, lab.device)


@pytest.fixture(scope="module")
def results(lab: Lab) -> list[SchemeResult]:
    return compared(lab)


def by_name(results: list[SchemeResult]) -> dict[str, SchemeResult]:
    return {each.scheme: each for each in results}


# The choice


def result(
    scheme: str, harm: float, size: int = 1000, latency: float = 10.0, median: float | None = None
) -> SchemeResult:
    return SchemeResult(
        scheme=scheme,
        divergence=harm,
        exact_divergence=harm,
        size_bytes=size,
        size_ratio=size / 4000,
        latency_ms=latency if median is None else median,
        latency_p10_ms=latency,
    )


def chosen(*results: SchemeResult, most: int = 100) -> list[str]:
    return [each.scheme for each in choose(results, most)]


def test_if_latency_is_asked_for_one_of_the_fastest_is_a_base() -> None:
    results = [
        result("exact", 0.01),
        result("small", 0.02, size=900),
        result("fast", 0.03, latency=6.0),
        result("fastest by a hair", 0.04, latency=5.9),
        result("ruins", RUINED * 2, latency=1.0),
    ]
    assert [each.scheme for each in choose(results, 2)] == ["exact", "small"]
    assert [each.scheme for each in choose(results, 2, timed=True)] == ["exact", "fast"]
    assert [each.scheme for each in choose(results, 1, timed=True)] == ["fast"]
    # Where the least harmful one is as fast, nothing changes.
    assert [each.scheme for each in choose(results[:2], 2, timed=True)] == ["exact", "small"]


def test_if_latency_is_asked_for_schemes_are_timed_in_turns(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed: list[int] = []

    def in_turns(models: list[Model], *others: object) -> tuple[list[Latency], Latency]:
        timed.append(len(models))
        return [Latency(3.0, 2.5, 3.5)] * len(models), Latency(4.0, 4.0, 4.0)

    monkeypatch.setattr(schemes, "time_in_turns", in_turns)
    quantizer = AutoQuantizer(samples=SAMPLES, only=["int8 per channel"], kernels=["safe"])
    (found,) = compare_schemes(quantizer, lab.subject, lab.device, timed=True)
    assert timed == [1] and (found.latency_ms, found.latency_p10_ms) == (3.0, 2.5)
    compare_schemes(quantizer, lab.subject, lab.device)
    assert timed == [1]


def test_least_harmful_comes_first_in_whatever_order() -> None:
    best, small, fast = result("a", 0.01), result("b", 0.02, size=500), result("c", 0.03, latency=5)
    assert chosen(best, small, fast) == chosen(fast, small, best) == ["a", "b", "c"]


def test_what_is_better_in_nothing_is_no_base() -> None:
    assert chosen(result("a", 0.01), result("b", 0.02)) == ["a"]
    assert chosen(result("a", 0.01), result("b", 0.02, size=2000, latency=20)) == ["a"]
    # It has to be better than each of those before it, not in the same thing.
    assert chosen(
        result("a", 0.01), result("b", 0.02, size=500, latency=5), result("c", 0.03, size=600)
    ) == ["a", "b"]


@pytest.mark.parametrize(("size", "base"), [(1000, False), (995, False), (985, True)])
def test_smaller_by_next_to_nothing_is_not_smaller(size: int, base: bool) -> None:
    assert ("b" in chosen(result("a", 0.01), result("b", 0.02, size=size))) is base


@pytest.mark.parametrize(("latency", "base"), [(10.0, False), (8.6, False), (8.4, True)])
def test_faster_by_no_more_than_noise_is_not_faster(latency: float, base: bool) -> None:
    assert ("b" in chosen(result("a", 0.01), result("b", 0.02, latency=latency))) is base


def test_shortest_times_tell_which_is_faster() -> None:
    slowed = result("a", 0.01, latency=10, median=30)
    assert chosen(slowed, result("b", 0.02, latency=10, median=10)) == ["a"]
    assert chosen(slowed, result("b", 0.02, latency=5, median=40)) == ["a", "b"]


def test_ruined_schemes_are_no_base_unless_all_are() -> None:
    fine, ruined = result("a", 0.1), result("b", 1.1 * RUINED, size=500, latency=1)
    assert chosen(fine, ruined) == ["a"]
    assert chosen(ruined) == ["b"]
    assert chosen(result("c", 2.0, size=100), ruined) == ["b"]


@pytest.mark.parametrize("most", [1, 2, 3])
def test_at_most_so_many_are_chosen_the_least_harmful_of_them(most: int) -> None:
    line = [result(str(at), at / 100, size=1000 - 100 * at) for at in range(5)]
    assert chosen(*line, most=most) == [str(at) for at in range(most)]


def test_equals_are_one_base() -> None:
    assert chosen(result("a", 0.01), result("b", 0.01)) == ["a"]


# The comparison


def test_every_scheme_is_compared_the_least_harmful_first(
    lab: Lab, results: list[SchemeResult]
) -> None:
    assert set(by_name(results)) == set(AutoQuantizer().schemes) and len(results) == 14
    harms = [each.divergence for each in results]
    assert harms == sorted(harms) and len(set(harms)) > 4
    assert all(0 < harm < math.inf for harm in harms)


def test_figures_are_those_of_the_first_calibration_samples(
    lab: Lab, results: list[SchemeResult]
) -> None:
    subject = lab.subject
    inputs = {name: array[:SAMPLES] for name, array in subject.calibration.inputs.items()}
    assert len(subject.calibration) > SAMPLES, "or this is no test"
    harm = Divergence({"y": lab.device.load(subject.model).run(inputs)[0]})
    full = Candidate.of(dict.fromkeys(subject.layer_names, INT8))
    for name, scheme in AutoQuantizer().schemes.items():
        model = scheme.quantize(subject.model, subject.ranges, full)
        found = by_name(results)[name]
        outputs = lab.device.load(model).run(inputs)[0]
        assert found.divergence == pytest.approx(harm.per_sample({"y": outputs}).mean(), rel=1e-5)
        assert found.size_bytes == len(model.to_bytes())
        assert found.size_ratio == found.size_bytes / subject.baseline["size_bytes"]
        assert found.latency_ms == found.latency_p10_ms == (1.0 if "uint8" in name else 2.0)


def test_bases_are_marked(results: list[SchemeResult]) -> None:
    bases = [each for each in results if each.base]
    assert bases == choose(results, 2) and len(bases) == 2
    assert bases[0] == results[0]
    # The first is the smallest too: another one can only be faster.
    assert [each.latency_ms for each in bases] == [2.0, 1.0]


@pytest.mark.parametrize("most", [1, 2, 3])
def test_as_many_bases_as_the_quantizer_wants(lab: Lab, most: int) -> None:
    quantizer = AutoQuantizer(
        samples=2, bases=most, only=["7 bits per tensor", "uint8 per channel"], kernels=["safe"]
    )
    found = compared(lab, quantizer)
    assert [each.base for each in found] == [True, most > 1]


def test_only_the_chosen_schemes_are_compared(lab: Lab) -> None:
    quantizer = AutoQuantizer(samples=2, only=["int8 per tensor"], kernels=["fast"])
    before = lab.device.loads
    found = compared(lab, quantizer)
    assert [(each.scheme, each.base) for each in found] == [("int8 per tensor, fast", True)]
    # The float model for its outputs; the scheme for its own and its latency.
    assert lab.device.loads == before + 2


def test_exact_divergence_is_that_of_the_file(results: list[SchemeResult]) -> None:
    found = by_name(results)
    ways = {name.rpartition(", ")[0] for name in found}
    for way in ways:
        safe, fast = found[f"{way}, safe"], found[f"{way}, fast"]
        assert safe.exact_divergence == fast.exact_divergence
        # Safe kernels compute what the file says, to a rounding here and there.
        assert safe.divergence == pytest.approx(safe.exact_divergence, rel=0.1, abs=1e-4)
    assert len({found[f"{way}, safe"].exact_divergence for way in ways}) > 4


def test_exact_divergence_does_not_depend_on_the_device(lab: Lab) -> None:
    class Deaf(TimedDevice):
        """A device on which integers come out wrong."""

        def load(self, model: Model):  # type: ignore[no-untyped-def]
            program = super().load(model)
            if model.session:
                run = program.run
                program.run = lambda inputs: [-each for each in run(inputs)]
            return program

    quantizer = AutoQuantizer(samples=2, only=["7 bits per tensor"], kernels=["safe"])
    (right,), (wrong,) = (
        compare_schemes(quantizer, lab.subject, device) for device in (TimedDevice(), Deaf())
    )
    assert wrong.divergence > 10 * right.divergence
    assert wrong.exact_divergence == right.exact_divergence


@NO_VNNI
def test_saturation_is_a_gap_to_the_exact_result_and_no_base(results: list[SchemeResult]) -> None:
    found = by_name(results)
    fast = found["int8 per channel, fast"]
    assert fast.divergence > 5 * fast.exact_divergence
    assert fast.exact_divergence < 0.05
    assert not fast.base
    # Weights that cannot saturate have none.
    for name in ("7 bits per channel", "7 bits per tensor", "uint8 per channel"):
        each = found[f"{name}, fast"]
        assert each.divergence == pytest.approx(each.exact_divergence, rel=0.1, abs=1e-4)


@NO_VNNI
def test_device_that_wants_safe_kernels_does_not_hide_what_fast_ones_do(lab: Lab) -> None:
    quantizer = AutoQuantizer(samples=2, only=["int8 per channel"])
    device = OnnxRuntimeDevice(precise_kernels="on", warmup=0, repeats=1)
    found = by_name(compare_schemes(quantizer, lab.subject, device))
    safe, fast = found["int8 per channel, safe"], found["int8 per channel, fast"]
    assert fast.divergence > 5 * safe.divergence


def test_poisoned_evaluation_samples_change_nothing(lab: Lab, results: list[SchemeResult]) -> None:
    samples = lab.subject.samples
    inputs = {name: np.full_like(array, np.nan) for name, array in samples.inputs.items()}
    poisoned = replace(
        lab.subject,
        samples=replace(samples, inputs=inputs, targets=None),
        reference={"y": np.full_like(lab.subject.reference["y"], np.nan)},
    )
    with pytest.raises(DeviceError):
        # The poison works.
        compared(lab, subject=replace(poisoned, calibration=poisoned.samples))
    assert compared(lab, subject=poisoned) == results


class Lacking(TimedDevice):
    """Cannot run models with these weights."""

    def __init__(self, *types: int, error: type[DeviceError] = DeviceError) -> None:
        super().__init__()
        self.types, self.error = types, error

    def load(self, model: Model):  # type: ignore[no-untyped-def]
        if any(weights_in(model, each) for each in self.types):
            raise self.error("no such kernel")
        return super().load(model)


def test_a_scheme_that_the_device_cannot_run_is_left_out(
    lab: Lab, results: list[SchemeResult], caplog: pytest.LogCaptureFixture
) -> None:
    quantizer = AutoQuantizer(samples=SAMPLES)
    left = {
        each.scheme for each in compare_schemes(quantizer, lab.subject, Lacking(TensorProto.UINT8))
    }
    lacking = {each.scheme for each in results} - left
    assert lacking and all("uint8" in name for name in lacking)
    assert all(f"cannot run the scheme {name}: no such kernel" in caplog.text for name in lacking)


def test_where_the_device_runs_none_this_cpu_compares_them(
    lab: Lab, results: list[SchemeResult]
) -> None:
    device = Lacking(TensorProto.UINT8, TensorProto.INT8)
    found = compare_schemes(AutoQuantizer(samples=SAMPLES), lab.subject, device)
    assert {each.scheme for each in found} == {each.scheme for each in results}
    assert any(each.base for each in found)


def test_a_broken_way_to_the_device_says_nothing_of_schemes(lab: Lab) -> None:
    device = Lacking(TensorProto.UINT8, error=DeviceTransportError)
    with pytest.raises(DeviceTransportError):
        compare_schemes(AutoQuantizer(samples=SAMPLES), lab.subject, device)


def test_comparison_leaves_no_program_open(lab: Lab) -> None:
    left = [0]

    class Counting(TimedDevice):
        """Knows how many of its programs are open."""

        def load(self, model: Model):  # type: ignore[no-untyped-def]
            program = super().load(model)
            close, left[0] = program.close, left[0] + 1

            def closed() -> None:
                left[0] -= 1
                close()

            program.close = closed
            return program

    device = Counting()
    compare_schemes(AutoQuantizer(samples=2), lab.subject, device)
    assert device.loads > 14 and left == [0]


def test_table_is_plain_rows(results: list[SchemeResult]) -> None:
    table = as_table(results)
    assert json.loads(json.dumps(table)) == table
    assert [row["scheme"] for row in table] == [each.scheme for each in results]
    assert set(table[0]) == {
        *("scheme", "divergence", "exact_divergence", "size_bytes", "size_ratio"),
        *("latency_ms", "latency_p10_ms", "base"),
    }
    assert [row["base"] for row in table] == [each.base for each in results]

"""Which layers make a candidate fail: found by what the error names, or by bisection."""

import random
from collections.abc import Callable, Collection

import pytest

from seqto.errors import DeviceTransportError
from seqto.study.blame import BISECTION, LIMIT, OPERATION, find_culprits, is_blamable
from seqto.types import FLOAT32, INT8, Candidate, Layer

LAYERS = [Layer(f"/block.{at}/{'Gemm' if at % 5 == 4 else 'Conv'}", "Conv", 1) for at in range(20)]
LAYERS = [Layer(each.name, each.name.rpartition("/")[2], 1) for each in LAYERS]
NAMES = [each.name for each in LAYERS]
FULL = Candidate.of(dict.fromkeys(NAMES, INT8))


class Machine:
    """A device that fails when these layers are quantized; counts the tries."""

    def __init__(self, fails: Callable[[set[str]], bool]) -> None:
        self._fails = fails
        self.tries: list[set[str]] = []

    def __call__(self, candidate: Candidate) -> str:
        quantized = {name for name, precision in candidate.precisions if precision != FLOAT32}
        self.tries.append(quantized)
        return "DeviceRunError: it ended by SIGSEGV" if self._fails(quantized) else ""


def integers(layer: Layer) -> Collection[str]:
    return {"ConvInteger" if layer.op_type == "Conv" else "MatMulInteger"}


def culprits(machine: Machine, failure: str = "SIGSEGV", candidate: Candidate = FULL) -> object:
    verdict = find_culprits(candidate, failure, LAYERS, machine, integers)
    return None if verdict is None else (set(verdict.layers), verdict.by)


@pytest.mark.parametrize("bad", NAMES)
def test_one_bad_layer_is_found_in_few_tries(bad: str) -> None:
    machine = Machine(lambda quantized: bad in quantized)
    assert culprits(machine) == ({bad}, BISECTION)
    assert len(machine.tries) <= 13


@pytest.mark.parametrize("count", [2, 3, 7, 20])
def test_several_bad_layers_are_found(count: int) -> None:
    bad = set(random.Random(count).sample(NAMES, count))
    machine = Machine(lambda quantized: bool(bad & quantized))
    assert culprits(machine) == (bad, BISECTION)


def test_layers_that_fail_only_together_cost_one_of_them() -> None:
    pair = {NAMES[3], NAMES[17]}
    machine = Machine(lambda quantized: pair <= quantized)
    found, by = culprits(machine)  # type: ignore[misc]
    assert len(found) == 1 and found < pair and by == BISECTION


def test_what_is_left_does_not_fail() -> None:
    bad = {NAMES[0], NAMES[9]}

    def fails(quantized: set[str]) -> bool:
        return bool(bad & quantized) or {NAMES[4], NAMES[5]} <= quantized

    found, _ = culprits(Machine(fails))  # type: ignore[misc]
    assert not fails(set(NAMES) - found)
    assert len(found) == 3


def test_the_order_of_the_analysis_is_kept() -> None:
    machine = Machine(lambda quantized: NAMES[0] in quantized)
    culprits(machine)
    assert set(NAMES[:10]) in machine.tries and set(NAMES[:5]) in machine.tries


@pytest.mark.parametrize(
    ("failure", "bad"),
    [
        ("operation MatMulInteger is not implemented", [n for n in NAMES if "Gemm" in n]),
        ("no kernel for 'Gemm' in int8", [n for n in NAMES if "Gemm" in n]),
        (f"node {NAMES[7]} is not supported", [NAMES[7]]),
    ],
)
def test_what_the_error_names_is_tried_first(failure: str, bad: list[str]) -> None:
    machine = Machine(lambda quantized: bool(set(bad) & quantized))
    assert culprits(machine, failure) == (set(bad), OPERATION)
    assert len(machine.tries) == 3


def test_a_name_is_a_whole_word() -> None:
    # `/block.1/Conv` is part of `/block.11/Conv` only as letters, `Conv` is in `ConvInteger`.
    machine = Machine(lambda quantized: NAMES[11] in quantized)
    assert culprits(machine, f"node {NAMES[11]}") == ({NAMES[11]}, OPERATION)


def test_a_named_operation_that_does_not_explain_it_is_not_blamed() -> None:
    machine = Machine(lambda quantized: NAMES[0] in quantized)
    assert culprits(machine, "MatMulInteger seems slow") == ({NAMES[0]}, BISECTION)


def test_only_what_the_candidate_quantizes_can_be_blamed() -> None:
    machine = Machine(lambda quantized: bool({NAMES[2], NAMES[8]} & quantized))
    left = Candidate.excluding(NAMES, [NAMES[2]])
    assert culprits(machine, candidate=left) == ({NAMES[8]}, BISECTION)
    assert not any(NAMES[2] in each for each in machine.tries)


def test_no_layer_is_blamed_where_the_float_model_fails() -> None:
    assert culprits(Machine(lambda quantized: True)) is None


def test_no_layer_is_blamed_for_what_does_not_happen_again() -> None:
    machine = Machine(lambda quantized: False)
    assert culprits(machine) is None
    assert len(machine.tries) == 2


def test_a_lost_device_is_no_answer() -> None:
    def lost(candidate: Candidate) -> str:
        raise DeviceTransportError("lost")

    with pytest.raises(DeviceTransportError):
        find_culprits(FULL, "SIGSEGV", LAYERS, lost, integers)


def test_tries_are_limited() -> None:
    many = [Layer(f"layer{at}", "Conv", 1) for at in range(400)]
    full = Candidate.of({each.name: INT8 for each in many})
    machine = Machine(bool)
    verdict = find_culprits(full, "SIGSEGV", many, machine, lambda layer: ())
    assert verdict is not None and set(verdict.layers) == {each.name for each in many}
    assert len(machine.tries) <= LIMIT + 20


def test_precisions_are_kept_in_the_tries() -> None:
    mixed = Candidate.of({name: "int4" if at % 2 else INT8 for at, name in enumerate(NAMES)})
    seen: list[Candidate] = []

    def attempt(candidate: Candidate) -> str:
        seen.append(candidate)
        return "fails" if dict(candidate.precisions)[NAMES[1]] == "int4" else ""

    verdict = find_culprits(mixed, "SIGSEGV", LAYERS, attempt, integers)
    assert verdict is not None and verdict.layers == (NAMES[1],)
    assert {"int4", INT8, FLOAT32} >= {each for one in seen for _, each in one.precisions}


@pytest.mark.parametrize(
    ("failure", "blamable"),
    [
        ("DeviceRunError: x", True),
        ("DeviceImportError: x", True),
        ("DeviceCompileError: x", True),
        ("DeviceTimeoutError: x", True),
        ("DeviceError: the model's output is not finite", True),
        ("DeviceTransportError: x", False),
        ("UnreachableError: x", False),
        ("ConfigError: x", False),
        ("ValueError: DeviceRunError: x", False),
        ("", False),
    ],
)
def test_which_failures_say_something_of_a_candidate(failure: str, blamable: bool) -> None:
    assert is_blamable(failure) == blamable

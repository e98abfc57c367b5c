"""Whom each kernel's time belongs to."""

import pytest

from seqto.measuring.node_times import node_times
from seqto.types import KernelTime

LAYERS = ("one", "two")
NODES = ("one", "relu", "two", "pool")


def test_a_kernel_of_a_layer_is_the_layers_whatever_else_it_runs() -> None:
    profile = [KernelTime("k", "FusedConv", 2.0, ("relu", "one"))]
    found = node_times(profile, LAYERS, NODES)
    assert found.ms == {"one": 2.0} and found.kinds == {"one": "FusedConv"}
    assert not found.integers


def test_integers_of_dynamic_layers_have_other_names() -> None:
    profile = [KernelTime("k", "ConvInteger", 2.0, ("one_quant",))]
    assert node_times(profile, LAYERS, NODES).ms == {"one": 2.0}


def test_conversions_into_integers_belong_to_who_reads_them_and_others_to_who_makes_them() -> None:
    profile = [
        KernelTime("q0", "QuantizeLinear", 1.0, ("x_QuantizeLinear",)),
        KernelTime("t0", "Transpose", 2.0, reads=("q0",)),
        KernelTime("c1", "QLinearConv", 10.0, ("one",), ("t0",), passes_integers=True),
        KernelTime("t1", "Transpose", 4.0, reads=("c1",)),
        KernelTime("d1", "DequantizeLinear", 8.0, reads=("t1",)),
        KernelTime("p", "AveragePool", 5.0, ("pool",), ("d1",)),
        KernelTime("q1", "QuantizeLinear", 16.0, reads=("p",)),
        KernelTime("c2", "QLinearConv", 20.0, ("two",), ("q1",), passes_integers=True),
    ]
    found = node_times(profile, LAYERS, NODES)
    assert found.ms == {"one": 10 + 1 + 2 + 4 + 8, "pool": 5, "two": 20 + 16}
    assert found.integers == {"one", "two"}
    assert found.rest_ms == 0
    assert sum(found.ms.values()) == pytest.approx(sum(each.ms for each in profile))


def test_what_belongs_to_nobody_is_left_over() -> None:
    profile = [KernelTime("i", "Identity", 3.0), KernelTime("c", "Conv", 1.0, ("one",))]
    found = node_times(profile, LAYERS, NODES)
    assert found.ms == {"one": 1.0} and found.rest_ms == 3.0

"""What every quantizer must do; the test of each one subclasses this."""

import dataclasses
import hashlib
import itertools
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_models import node_names, residual, run
from pydantic import ValidationError
from quantizable_models import random_samples, shared_weight, weightless, wide

from seqto.errors import ConfigError, ModelError
from seqto.graph.prepare import prepare
from seqto.models.local import LocalModel
from seqto.protocols import Learns, Quantizer
from seqto.types import (
    CODED,
    CODED_STEPS,
    FLOAT16,
    FLOAT32,
    INT4,
    INT8,
    INT16,
    Candidate,
    Layer,
    Model,
    Ranges,
    Samples,
    family,
    listed,
)

# Run in a process of its own, whose sets have another order.
_QUANTIZE_AND_PRINT_SHA256 = """
import dataclasses, hashlib, pickle, sys
import onnx
from seqto.protocols import Learns
from seqto.types import Candidate, Model, Samples
quantizer, data, inputs, ids, layers, excluded = pickle.load(sys.stdin.buffer)
model, _ = quantizer.prepare(Model("residual", onnx.load_from_string(data)))
samples = Samples(inputs, ids)
ranges = quantizer.calibrate(model, samples)
if isinstance(quantizer, Learns):
    model = dataclasses.replace(model, learned=quantizer.learn(model, ranges, samples))
quantized = quantizer.quantize(model, ranges, Candidate.excluding(layers, excluded))
print(hashlib.sha256(quantized.to_bytes()).hexdigest())
"""


def tried(quantizer: Quantizer) -> tuple[str, ...]:
    """Return the quantizer's precisions, of coded weights only one."""
    skipped = CODED_STEPS.keys() - {"coded_0.5"}
    return tuple(each for each in quantizer.precisions if each not in skipped)


class Prepared:
    """A model as the quantizer takes it, calibrated."""

    def __init__(self, quantizer: Quantizer, floating: Model, samples: Samples) -> None:
        self.quantizer = quantizer
        self.floating = floating
        self.samples = samples
        self.model: Model
        self.layers: tuple[Layer, ...]
        self.model, self.layers = quantizer.prepare(floating)
        self.ranges: Ranges = quantizer.calibrate(self.model, samples)
        if isinstance(quantizer, Learns):
            learned = quantizer.learn(self.model, self.ranges, samples)
            self.model = dataclasses.replace(self.model, learned=learned)

    @property
    def names(self) -> list[str]:
        """The names of the layers."""
        return [layer.name for layer in self.layers]

    @property
    def inputs(self) -> dict[str, np.ndarray]:
        """The samples, as a session takes them."""
        return dict(self.samples.inputs)

    def excluding(self, *excluded: str) -> Model:
        """Return the model that leaves these layers in float."""
        candidate = Candidate.excluding(self.names, excluded)
        return self.quantizer.quantize(self.model, self.ranges, candidate)

    def mixed(self, *precisions: str) -> Model:
        """Return the model whose layers have these precisions in turn."""
        turns = zip(self.names, itertools.cycle(precisions), strict=False)
        return self.quantizer.quantize(self.model, self.ranges, Candidate.of(dict(turns)))


def prepared_residual(quantizer: Quantizer) -> Prepared:
    """Return the residual model, ready to be quantized."""
    floating = prepare(residual())
    return Prepared(quantizer, floating, random_samples(floating))


class QuantizerSuite:
    """Subclasses give the fixture `quantizer`."""

    @pytest.fixture
    def quantizer(self) -> Quantizer:
        """Return the quantizer to test."""
        raise NotImplementedError

    @pytest.fixture
    def prepared(self, quantizer: Quantizer) -> Prepared:
        """Return the residual model, ready to be quantized."""
        return prepared_residual(quantizer)

    def test_has_a_name(self, quantizer: Quantizer) -> None:
        assert quantizer.name

    def test_layers_are_the_nodes_with_weights_in_graph_order(self, prepared: Prepared) -> None:
        assert prepared.names == ["stem", "left", "right", "head"]
        assert [layer.weight_bytes for layer in prepared.layers] == [864, 2304, 2304, 320]
        assert set(prepared.names) <= set(node_names(prepared.model))

    def test_prepared_model_is_still_the_float_model(self, prepared: Prepared) -> None:
        np.testing.assert_allclose(
            run(prepared.model, prepared.inputs)[0],
            run(prepared.floating, prepared.inputs)[0],
            rtol=1e-5,
            atol=1e-6,
        )

    def test_full_quantization_moves_the_outputs_a_little(self, prepared: Prepared) -> None:
        floating = run(prepared.floating, prepared.inputs)[0]
        moved = np.abs(run(prepared.excluding(), prepared.inputs)[0] - floating).max()
        assert 0 < moved < 0.1 * np.abs(floating).max()

    def test_excluding_every_layer_gives_the_float_outputs(self, prepared: Prepared) -> None:
        np.testing.assert_array_equal(
            run(prepared.excluding(*prepared.names), prepared.inputs)[0],
            run(prepared.model, prepared.inputs)[0],
        )

    def test_every_choice_of_layers_is_another_valid_model(self, prepared: Prepared) -> None:
        # An exclusion that changes nothing would be a candidate measured for nothing.
        found = {}
        for count in range(len(prepared.names) + 1):
            for excluded in itertools.combinations(prepared.names, count):
                quantized = prepared.excluding(*excluded)
                onnx.checker.check_model(quantized.proto)
                assert np.isfinite(run(quantized, prepared.inputs, optimized=True)[0]).all()
                found[excluded] = quantized.to_bytes()
        assert len(found) == len(set(found.values())) == 16

    def test_only_quantized_layers_lose_their_float_weights(self, prepared: Prepared) -> None:
        # The first dimensions name a weight in both directions of a Gemm.
        shapes = {"stem": (3, 3, 3, 8), "left": (3, 3, 8, 8), "head": (8, 10)}
        for name in shapes:
            floats = {
                tuple(sorted(each.dims))
                for each in prepared.excluding(name).proto.graph.initializer
                if each.data_type == onnx.TensorProto.FLOAT
            }
            assert {other for other, shape in shapes.items() if shape in floats} == {name}

    def test_every_precision_and_all_of_them_together_are_valid_models(
        self, prepared: Prepared
    ) -> None:
        known = tried(prepared.quantizer)
        wanted = run(prepared.floating, prepared.inputs)[0]
        mixtures = [(each,) for each in known] + [
            known[at:] + known[:at] for at in range(len(known))
        ]
        found = set()
        for precisions in mixtures:
            quantized = prepared.mixed(*precisions)
            onnx.checker.check_model(quantized.proto, full_check=True)
            # Three bits a weight move the outputs further than four.
            near = (0.3 if CODED in map(family, precisions) else 0.2) * np.abs(wanted).max()
            for optimized in (False, True):
                outputs = run(quantized, prepared.inputs, optimized=optimized)[0]
                np.testing.assert_allclose(outputs, wanted, atol=near)
            found.add(quantized.to_bytes())
            assert prepared.mixed(*precisions).to_bytes() == quantized.to_bytes()
        assert len(found) == len(mixtures)

    def test_precisions_have_int8_and_float32(self, quantizer: Quantizer) -> None:
        assert {INT8, FLOAT32} < set(quantizer.precisions)
        assert len(set(quantizer.precisions)) == len(quantizer.precisions)

    def test_unknown_precision_names_the_choices(self, prepared: Prepared) -> None:
        with pytest.raises(ConfigError) as caught:
            prepared.mixed(INT8, "int7")
        message = str(caught.value)
        assert f"quantization={prepared.quantizer.name} has no precision 'int7'" in message
        assert "which layer 'head' is to have" in message
        assert f"Choose from {listed(prepared.quantizer.precisions)}." in message

    def test_fewer_bits_are_fewer_bytes(self, prepared: Prepared) -> None:
        # With channels enough that names and scales do not count.
        floating = prepare(wide())
        prepared = Prepared(prepared.quantizer, floating, random_samples(floating))
        whole = sum(layer.weight_bytes for layer in prepared.layers)
        rest = len(floating.to_bytes()) - whole
        shares = {
            "coded_0.5": 3.25 / 32,
            INT4: 4.5 / 32,
            INT8: 1 / 4,
            INT16: 1 / 4,
            FLOAT16: 1 / 2,
            FLOAT32: 1,
        }
        for precision in tried(prepared.quantizer):
            size = len(prepared.mixed(precision).to_bytes())
            assert size - rest == pytest.approx(shares[precision] * whole, rel=0.05)
            planned = sum(
                prepared.quantizer.stored_bytes(layer, precision) for layer in prepared.layers
            )
            assert size - rest == pytest.approx(planned, rel=0.02)

    def test_block_size_is_that_of_int4(self, prepared: Prepared) -> None:
        quantizer = prepared.quantizer
        coarse = dataclasses.replace(quantizer, block_size=64)
        sizes = [
            len(prepared_residual(each).mixed(INT4).to_bytes()) for each in (coarse, quantizer)
        ]
        assert sizes[0] < sizes[1]
        layer = prepared.layers[1]
        assert coarse.stored_bytes(layer, INT4) < quantizer.stored_bytes(layer, INT4)
        with pytest.raises(ValidationError, match="block_size"):
            dataclasses.replace(quantizer, block_size=0)

    def test_what_was_kept_of_another_model_is_not_used(self, prepared: Prepared) -> None:
        quantizer = prepared.quantizer
        everything = Candidate.of(dict(zip(prepared.names, tried(quantizer), strict=False)))
        before = quantizer.quantize(prepared.model, prepared.ranges, everything).to_bytes()
        other = Model("other", prepared.model.copy_proto())
        for tensor in other.proto.graph.initializer:
            if tensor.data_type == onnx.TensorProto.FLOAT and len(tensor.dims) > 1:
                values = np.roll(onnx.numpy_helper.to_array(tensor), 1)
                tensor.CopyFrom(onnx.numpy_helper.from_array(values * 2, tensor.name))
        found = quantizer.quantize(other, prepared.ranges, everything).to_bytes()
        fresh = pickle.loads(pickle.dumps(quantizer))
        assert found == fresh.quantize(other, prepared.ranges, everything).to_bytes()
        assert quantizer.quantize(prepared.model, prepared.ranges, everything).to_bytes() == before

    def test_copies_and_pickles_are_as_small_as_their_settings(self, prepared: Prepared) -> None:
        prepared.mixed(*tried(prepared.quantizer))
        assert len(pickle.dumps(prepared.quantizer)) < 3000
        assert pickle.loads(pickle.dumps(prepared.quantizer)) == prepared.quantizer

    def test_one_of_two_layers_that_share_a_weight_can_be_excluded(
        self, quantizer: Quantizer
    ) -> None:
        floating = prepare(shared_weight())
        prepared = Prepared(quantizer, floating, random_samples(floating))
        wanted = run(floating, prepared.inputs)[0]
        for excluded in ((), ("one",), ("two",), ("one", "two")):
            outputs = run(prepared.excluding(*excluded), prepared.inputs)[0]
            np.testing.assert_allclose(outputs, wanted, atol=0.1 * np.abs(wanted).max())
        for precisions in itertools.permutations(tried(quantizer), 2):
            quantized = prepared.mixed(*precisions)
            onnx.checker.check_model(quantized.proto, full_check=True)
            outputs = run(quantized, prepared.inputs)[0]
            near = (0.3 if CODED in map(family, precisions) else 0.2) * np.abs(wanted).max()
            np.testing.assert_allclose(outputs, wanted, atol=near)

    def test_same_candidate_gives_the_same_bytes(self, prepared: Prepared) -> None:
        first = prepared.excluding("left").to_bytes()
        prepared.excluding("stem", "head")
        assert prepared.excluding("left").to_bytes() == first

    def test_another_process_gives_the_same_bytes(
        self, quantizer: Quantizer, prepared: Prepared
    ) -> None:
        excluded = ["left"]
        here = hashlib.sha256(prepared.excluding(*excluded).to_bytes()).hexdigest()
        samples = prepared.samples
        given = pickle.dumps(
            (
                *(quantizer, prepared.floating.to_bytes()),
                *(samples.inputs, samples.ids, prepared.names, excluded),
            )
        )
        # Two at once: a seed of sets' order may by chance be the one of this process.
        processes = [_started(given, hash_seed) for hash_seed in ("1", "2")]
        assert [_printed(each) for each in processes] == [here, here]

    def test_what_it_is_given_stays_as_it_is(self, quantizer: Quantizer) -> None:
        floating = prepare(residual())
        before = floating.to_bytes()
        prepared = Prepared(quantizer, floating, random_samples(floating))
        assert floating.to_bytes() == before
        model, ranges = prepared.model.to_bytes(), dict(prepared.ranges)
        prepared.excluding("left")
        assert prepared.model.to_bytes() == model
        assert prepared.ranges == ranges

    def test_what_was_learned_is_small_and_not_needed(self, prepared: Prepared) -> None:
        if not isinstance(prepared.quantizer, Learns):
            pytest.skip("learns nothing")
        learned = prepared.model.learned
        # Half a byte for each pair of values that an output sums over, and a few numbers.
        values = [layer.shape[1] for layer in prepared.layers]
        outputs = sum(layer.shape[0] for layer in prepared.layers)
        schemes = getattr(prepared.quantizer, "schemes", {"": None})
        most = sum(each * (each - 1) // 2 + 8 * each for each in values)
        most += 4 * outputs * len(schemes)
        assert sum(each.nbytes for each in learned.values()) <= most
        prepared.model = dataclasses.replace(prepared.model, learned={})
        wanted = run(prepared.floating, prepared.inputs)[0]
        outputs = run(prepared.excluding(), prepared.inputs)[0]
        np.testing.assert_allclose(outputs, wanted, atol=0.1 * np.abs(wanted).max())

    def test_ranges_are_plain_numbers(self, prepared: Prepared) -> None:
        for low, high in prepared.ranges.values():
            assert type(low) is type(high) is float
            assert np.isfinite([low, high]).all()
            assert low <= high

    def test_outputs_depend_on_the_batch_only_where_it_says_so(self, prepared: Prepared) -> None:
        quantized = prepared.excluding()
        together = run(quantized, prepared.inputs)[0]
        alone = np.concatenate(
            [run(quantized, dict(each))[0] for each in prepared.samples.batches(1)]
        )
        # Not to the last bit: ORT multiplies a single row and many of them differently.
        alike = np.allclose(together, alone, rtol=1e-5, atol=1e-6)
        assert alike == prepared.quantizer.batch_invariant

    def test_leaves_no_file_and_no_word_behind(
        self,
        quantizer: Quantizer,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str],
    ) -> None:
        path = tmp_path / "users" / "model.onnx"
        path.parent.mkdir()
        path.write_bytes(residual().to_bytes())
        monkeypatch.chdir(path.parent)
        floating = prepare(LocalModel(path=str(path)).load())
        Prepared(quantizer, floating, random_samples(floating)).excluding("left")
        assert [each.name for each in tmp_path.rglob("*")] == ["users", "model.onnx"]
        assert path.read_bytes() == residual().to_bytes()
        printed = capfd.readouterr()
        assert printed.out == printed.err == ""

    def test_model_without_weights_is_refused(self, quantizer: Quantizer) -> None:
        with pytest.raises(ModelError, match="'weightless' has no layer to quantize.*MatMul, Relu"):
            quantizer.prepare(prepare(weightless()))


def _started(given: bytes, hash_seed: str) -> "subprocess.Popen[bytes]":
    environment = os.environ | {
        "PYTHONHASHSEED": hash_seed,
        "PYTHONPATH": os.pathsep.join(each for each in sys.path if each),
    }
    process = subprocess.Popen(
        [sys.executable, "-c", _QUANTIZE_AND_PRINT_SHA256],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    )
    assert process.stdin is not None
    process.stdin.write(given)
    process.stdin.close()
    return process


def _printed(process: "subprocess.Popen[bytes]") -> str:
    assert process.stdout is not None
    with process.stdout as stdout:
        printed = stdout.read().decode().strip()
    assert process.wait(timeout=300) == 0
    return printed

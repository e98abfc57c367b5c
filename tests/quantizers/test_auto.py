"""Several schemes of static quantization."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from onnx_models import residual
from pydantic import ValidationError
from quantizable_models import random_samples, weights_in
from suite_quantizers import Prepared, QuantizerSuite, prepared_residual

from seqto.devices.onnxruntime import OnnxRuntimeDevice
from seqto.errors import ConfigError
from seqto.graph.prepare import prepare
from seqto.protocols import Quantizer, SeveralSchemes
from seqto.quantizers.auto import KERNELS, SCHEMES, AutoQuantizer
from seqto.quantizers.static import StaticQuantizer
from seqto.types import INT4, INT8, Candidate, Model

NAMES = [f"{name}, {kernel}" for name in SCHEMES for kernel in KERNELS]


class TestAutoQuantizer(QuantizerSuite):
    """The conformance suite: of candidates without a scheme, which get the first."""

    @pytest.fixture
    def quantizer(self) -> AutoQuantizer:
        """Return the default."""
        return AutoQuantizer()

    def test_block_size_is_that_of_int4(self, prepared: Prepared) -> None:
        """It is an option of the static quantizer here."""
        coarse = AutoQuantizer(options={"block_size": 64})
        sizes = [prepared_residual(each).mixed(INT4).size for each in (coarse, prepared.quantizer)]
        assert sizes[0] < sizes[1]
        layer = prepared.layers[1]
        assert coarse.stored_bytes(layer, INT4) < prepared.quantizer.stored_bytes(layer, INT4)
        with pytest.raises(ValidationError, match="block_size"):
            AutoQuantizer(options={"block_size": 0})


class TestOneScheme(QuantizerSuite):
    """The conformance suite, where the first scheme is not the static quantizer's default."""

    @pytest.fixture
    def quantizer(self) -> AutoQuantizer:
        """Return one that has a single scheme."""
        return AutoQuantizer(only=["uint8 per tensor"], kernels=["fast"])

    def test_block_size_is_that_of_int4(self, prepared: Prepared) -> None:
        """It does not change with the scheme."""
        layer = prepared.layers[1]
        assert prepared.quantizer.stored_bytes(layer, INT4) == StaticQuantizer().stored_bytes(
            layer, INT4
        )


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    return prepared_residual(AutoQuantizer())


def in_scheme(prepared: Prepared, scheme: str, *excluded: str) -> Model:
    """Return the model that leaves these layers in float and has the others in this scheme."""
    candidate = Candidate.excluding(prepared.names, excluded)
    return prepared.quantizer.quantize(
        prepared.model, prepared.ranges, dataclasses.replace(candidate, scheme=scheme)
    )


def test_schemes_are_all_ways_with_all_kernels() -> None:
    assert len(set(NAMES)) == 14
    assert list(AutoQuantizer().schemes) == NAMES
    chosen = AutoQuantizer(only=["7 bits per tensor", "int8 per channel"], kernels=["fast"])
    assert list(chosen.schemes) == ["7 bits per tensor, fast", "int8 per channel, fast"]


def test_only_this_quantizer_has_several_schemes() -> None:
    assert isinstance(AutoQuantizer(), SeveralSchemes)
    assert not isinstance(StaticQuantizer(), SeveralSchemes)


@pytest.mark.parametrize("excluded", [(), ("left",)])
@pytest.mark.parametrize("name", NAMES)
def test_scheme_is_static_quantization_with_its_options_and_session(
    prepared: Prepared, name: str, excluded: tuple[str, ...]
) -> None:
    way, _, kernel = name.rpartition(", ")
    static = prepared_residual(StaticQuantizer(**SCHEMES[way], session=dict(KERNELS[kernel])))
    wanted = static.excluding(*excluded)
    found = in_scheme(prepared, name, *excluded)
    assert found.to_bytes() == wanted.to_bytes()
    assert dict(found.session) == dict(wanted.session) == dict(KERNELS[kernel])
    assert found.digest == wanted.digest


def test_ranges_and_layers_are_those_of_static_quantization(prepared: Prepared) -> None:
    static = prepared_residual(StaticQuantizer())
    assert prepared.ranges == static.ranges
    assert prepared.layers == static.layers
    assert prepared.model.to_bytes() == static.model.to_bytes()
    assert prepared.quantizer.precisions == static.quantizer.precisions


def test_ways_to_quantize_are_different_files() -> None:
    prepared = prepared_residual(AutoQuantizer(kernels=["safe"]))
    files = {in_scheme(prepared, f"{way}, safe").to_bytes() for way in SCHEMES}
    assert len(files) == len(SCHEMES)


def test_options_of_each_way_show_in_its_file(prepared: Prepared) -> None:
    def scales(way: str) -> int:
        model = in_scheme(prepared, f"{way}, safe")
        (found,) = (each for each in model.proto.graph.initializer if each.name == "stem_w_scale")
        return int(np.prod(found.dims))

    for way in SCHEMES:
        model = in_scheme(prepared, f"{way}, safe")
        unsigned = way.startswith("uint8")
        assert len(weights_in(model, TensorProto.UINT8 if unsigned else TensorProto.INT8)) == 4
        assert scales(way) == (8 if "per channel" in way else 1)


@pytest.mark.parametrize("way", SCHEMES)
def test_safe_and_fast_are_the_same_file_but_not_the_same_model(
    prepared: Prepared, way: str
) -> None:
    safe, fast = (in_scheme(prepared, f"{way}, {kernel}") for kernel in ("safe", "fast"))
    assert safe.to_bytes() == fast.to_bytes() and safe.size == fast.size == len(safe.to_bytes())
    assert safe.digest != fast.digest
    # A file that needs no options of its own is known by its sha256 alone.
    assert Model("plain", safe.proto).digest not in (safe.digest, fast.digest)


def test_candidate_without_a_scheme_has_the_first(prepared: Prepared) -> None:
    assert in_scheme(prepared, "").digest == in_scheme(prepared, NAMES[0]).digest
    assert in_scheme(prepared, "").digest != in_scheme(prepared, NAMES[-1]).digest


def test_scheme_is_part_of_the_candidates_key(prepared: Prepared) -> None:
    plain = Candidate.of(dict.fromkeys(prepared.names, INT8))
    keys = {dataclasses.replace(plain, scheme=name).key for name in ("", *NAMES)}
    assert len(keys) == len(NAMES) + 1
    assert plain.key == Candidate.of(dict(plain.precisions), "").key


def test_options_are_those_of_all_schemes() -> None:
    floating = prepare(residual())
    options: dict[str, Any] = {"calibration": "percentile", "percentile": 90}
    found = Prepared(AutoQuantizer(options=options), floating, random_samples(floating))
    wanted = prepared_residual(StaticQuantizer(**options))
    assert found.ranges == wanted.ranges != prepared_residual(StaticQuantizer()).ranges
    for scheme in found.quantizer.schemes.values():  # type: ignore[attr-defined]
        assert scheme.calibration == "percentile" and scheme.name == "auto"


def test_excluded_layers_are_left_out_of_every_scheme() -> None:
    prepared = prepared_residual(AutoQuantizer(exclude=["stem"]))
    assert prepared.names == ["left", "right", "head"]
    for name in NAMES:
        assert "stem_w" in weights_in(in_scheme(prepared, name))


def test_device_runs_a_scheme_with_its_own_options(prepared: Prepared) -> None:
    # The schemes have the last word, whatever the device does by itself.
    device = OnnxRuntimeDevice(precise_kernels="on")
    fast, safe = (
        device.load(in_scheme(prepared, f"int8 per channel, {kernel}"))._session
        for kernel in ("fast", "safe")
    )
    entry = "session.x64quantprecision"
    assert fast.get_session_options().get_session_config_entry(entry) == "0"
    assert safe.get_session_options().get_session_config_entry(entry) == "1"


def test_unknown_scheme_names_the_nearest_and_the_choices(prepared: Prepared) -> None:
    with pytest.raises(ConfigError) as caught:
        in_scheme(prepared, "int8 per chanel, safe")
    message = str(caught.value)
    assert "no scheme 'int8 per chanel, safe' (did you mean 'int8 per channel, safe'" in message
    assert all(name in message for name in NAMES)


def test_scheme_that_was_not_chosen_is_unknown() -> None:
    prepared = prepared_residual(AutoQuantizer(only=["int8 per tensor"], kernels=["safe"]))
    with pytest.raises(ConfigError, match="Choose from int8 per tensor, safe"):
        in_scheme(prepared, "int8 per tensor, fast")


def test_only_has_to_name_schemes() -> None:
    with pytest.raises(ConfigError, match="quantization.only names 'int8 per tenser'.*did you"):
        AutoQuantizer(only=["int8 per channel", "int8 per tenser"])
    with pytest.raises(ConfigError, match="quantization.only leaves no scheme"):
        AutoQuantizer(only=[])


@pytest.mark.parametrize(
    "wrong",
    [
        {"kernels": []},
        {"kernels": ["quick"]},
        {"samples": 0},
        {"bases": 0},
        {"per_channel": True},
    ],
)
def test_wrong_settings_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        AutoQuantizer(**wrong)


def test_wrong_option_of_the_static_quantizer_is_named() -> None:
    with pytest.raises(ValidationError, match="calibratoin"):
        AutoQuantizer(options={"calibratoin": "entropy"})


def test_every_scheme_is_a_quantizer_of_its_own(prepared: Prepared) -> None:
    quantizers: dict[str, Quantizer] = dict(AutoQuantizer().schemes)
    full = Candidate.of(dict.fromkeys(prepared.names, INT8))
    for name, quantizer in quantizers.items():
        found = quantizer.quantize(prepared.model, prepared.ranges, full)
        assert found.digest == in_scheme(prepared, name).digest

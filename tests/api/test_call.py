"""From the keywords of a call to the words of a command line."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx_models import residual

import seqto
from seqto.api.call import Call, call_of
from seqto.config.compose import composed
from seqto.config.words import word, written
from seqto.datasets.digits import DigitsDataset
from seqto.devices.onnxruntime import OnnxRuntimeDevice
from seqto.errors import ConfigError
from seqto.metrics.agreement import TopKAgreement
from seqto.metrics.function import FunctionMetric
from seqto.models.local import LocalModel
from seqto.search.ladder import LadderSearch
from seqto.types import Outputs


class Nameless:
    """A metric that its author forgot to name."""

    def losses(self, reference: Outputs, outputs: Outputs) -> list[float]:
        """Return that nothing is lost."""
        return [0.0 for _ in next(iter(outputs.values()))]


DATA = DigitsDataset()
PHOTOS = ["dataset.path=photos"]


def call(model: Any = "my.onnx", samples: Any = DATA, labels: Any = None, **keywords: Any) -> Call:
    overrides = keywords.pop("overrides", ())
    return call_of(seqto.tune, model, samples, labels, keywords, overrides, {})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, ["model=local", "model.path=my.onnx"]),
        ({"model": Path("a b.onnx")}, ["model=local", "model.path='a b.onnx'"]),
        ({"model": "digits"}, ["model=digits"]),
        (
            {"samples": "photos", "preprocess": "imagenet"},
            ["dataset=images", "dataset.path=photos", "preprocess=imagenet"],
        ),
        ({"model": "resnet50", "samples": "photos"}, ["model=resnet50", "dataset=images", *PHOTOS]),
        ({"samples": Path("x.npz")}, ["dataset=npz", "dataset.path=x.npz"]),
        ({"device": "cpu"}, ["device=cpu"]),
        ({"quantization": "static"}, ["quantization=static"]),
        ({"precisions": ["int8", "float32"]}, ["precisions=[int8,float32]"]),
        ({"evaluations": 6}, ["search.evaluations=6"]),
        ({"max_accuracy_loss": 0.01}, ["constraint.max_accuracy_loss=0.01"]),
        ({"max_size_ratio": 0.3}, ["constraint.max_size_ratio=0.3"]),
        ({"max_latency_ms": 8}, ["constraint.max_latency_ms=8"]),
        ({"calibration_size": 50}, ["dataset.calibration_size=50"]),
        ({"evaluation_size": 60}, ["dataset.evaluation_size=60"]),
        ({"overrides": ["sensitivity.samples=64"]}, ["sensitivity.samples=64"]),
    ],
    ids=str,
)
def test_keywords_are_the_words_of_the_command_line(
    given: dict[str, Any], words: list[str]
) -> None:
    made = call(**given)
    start = [] if "model" in given or not given else ["model=local", "model.path=my.onnx"]
    assert made.words == [*start, *words]
    assert made.is_typed == ("samples" in given)


@pytest.mark.parametrize(
    "value",
    [
        *("my.onnx", "a b", "it's", 'say "so"', "a,b", "a=b", "null", "true", "12", "1e3", "", "ü"),
        *(
            "/conv/Conv",
            "~/x",
            "a:b",
            "{a}",
            "[a]",
            "$x",
            "${x}",
            "a${x}b",
            "a/é.onnx",
            "a\\b",
            "-m",
            "+x",
        ),
        *(None, True, 3, 0.01, 1e-7, [1, "a b"], {"float16": ["/conv/Conv", "it's"]}),
    ],
    ids=repr,
)
def test_every_value_comes_through_hydra_as_it_is(value: Any) -> None:
    config = composed([f"+extra={written(value)}"])
    found = config.extra
    assert (list(found) if isinstance(value, list) else found) == value
    assert word("key", value) == f"key={written(value)}"


@pytest.mark.parametrize("model", [residual().to_bytes(), residual().proto], ids=["bytes", "proto"])
def test_a_model_in_memory_is_loaded_from_there(model: Any) -> None:
    made = call(model, np.zeros((20, 3)), name="mine")
    given = made.given(made.config(), None)
    loaded = given["model"].load()
    assert loaded.name == "mine"
    assert loaded.proto == residual().proto
    assert not made.is_typed
    assert set(given) == {"model", "dataset"}


def test_sizes_and_seed_reach_samples_in_memory() -> None:
    made = call(samples=np.zeros((20, 3)), calibration_size=5, overrides=["dataset.seed=3"])
    dataset = made.given(made.config(), None)["dataset"]
    assert (dataset.calibration_size, dataset.evaluation_size, dataset.seed) == (5, None, 3)


def test_objects_stand_where_names_may() -> None:
    parts = {"device": OnnxRuntimeDevice(repeats=3), "metric": TopKAgreement(k=3)}
    made = call(LocalModel(path="x.onnx"), DigitsDataset(), **parts)
    given = made.given(made.config(), None)
    assert {group: given[group] for group in parts} == parts
    assert isinstance(given["model"], LocalModel) and isinstance(given["dataset"], DigitsDataset)
    assert made.words == []


def test_a_function_is_a_metric() -> None:
    def differs(reference: np.ndarray, outputs: np.ndarray) -> float:
        return float(np.mean(reference != outputs))

    metric = call(metric=differs).objects["metric"]
    assert isinstance(metric, FunctionMetric) and metric.name == "differs"


@pytest.mark.parametrize(
    ("keywords", "text"),
    [
        (
            {"device": OnnxRuntimeDevice(), "overrides": ["device.threads=2"]},
            "device.threads=2 has no effect, as device is an object here: set it on your OnnxRunt",
        ),
        ({"search": LadderSearch(), "evaluations": 3}, "search.evaluations=3 has no effect"),
    ],
)
def test_words_about_an_object_are_refused(keywords: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        call(**keywords).config()


def test_labels_belong_to_arrays() -> None:
    for samples in ("photos", DigitsDataset()):
        with pytest.raises(ConfigError, match="labels= belongs to arrays"):
            call(samples=samples, labels=[1])


def test_a_preprocessing_has_to_be_a_name() -> None:
    with pytest.raises(ConfigError, match=r"has to be a name: .*efficientnet_lite"):
        call(samples="photos", preprocess=3)


def test_a_misspelt_keyword_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"'max_acuracy_loss' \(did you mean 'max_accuracy_loss'"):
        call_of(seqto.tune, "my.onnx", DATA, None, {}, (), {"max_acuracy_loss": 0.1})


def test_each_function_names_its_own_keywords() -> None:
    with pytest.raises(ConfigError) as caught:
        call_of(seqto.rank, "my.onnx", DATA, None, {}, (), {"tracking": None})
    assert "there is no keyword 'tracking'" in str(caught.value)
    assert "tracking, " not in str(caught.value).partition("Keywords are")[2]
    with pytest.raises(ConfigError, match="there is no keyword 'evaluations'"):
        call_of(seqto.rank, "my.onnx", DATA, None, {}, (), {"evaluations": 3})


@pytest.mark.parametrize(
    ("keywords", "text"),
    [
        ({"samples": None}, "samples are missing: give an array"),
        ({"samples": None, "labels": [1], "model": "digits"}, "labels= belongs to arrays"),
        ({"model": None}, "the model is missing"),
        ({"samples": "photos"}, r"needs preprocess=.*: .*efficientnet_lite"),
        ({"samples": np.zeros((20, 3)), "preprocess": "imagenet"}, "preprocess has no effect"),
        ({"samples": (np.zeros((20, 3)), np.zeros(20))}, "labels=..."),
        ({"overrides": "a=b"}, r"overrides='a=b' has to be a list"),
        ({"overrides": [3]}, r"overrides=\[3\] has to be a list"),
        ({"device": object()}, "device is no Device: your object has no describe, kernels, load"),
        ({"device": OnnxRuntimeDevice}, r"give an object of your class, OnnxRuntimeDevice\("),
        ({"search": object()}, "search is no Search: your object has no ask, evaluations, name"),
        ({"metric": Nameless()}, "metric is no Metric: your Nameless has no name"),
        ({"quantization": object()}, "quantization is no Quantizer"),
        ({"sensitivity": object()}, "sensitivity is no Sensitivity"),
    ],
    ids=lambda each: next(iter(each)) if isinstance(each, dict) else "",
)
def test_what_cannot_be_meant_is_refused(keywords: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        call(**keywords)


def test_what_was_handed_over_is_not_chosen_by_words_too() -> None:
    made = call(samples=np.zeros((20, 3)), overrides=["dataset=digits"])
    with pytest.raises(ConfigError, match="dataset=digits has no effect, as samples was handed"):
        made.config()


def test_no_overrides_may_be_none() -> None:
    assert call(overrides=None).words == ["model=local", "model.path=my.onnx"]


def test_a_file_comes_before_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(residual().proto, tmp_path / "digits")
    assert call("digits").words == ["model=local", "model.path=digits"]

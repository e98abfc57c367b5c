"""What identifies a part: two that differ in one field are never taken for each other."""

import dataclasses
import functools
import json
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqto.datasets.arrays import ArrayFile
from seqto.datasets.digits import DigitsDataset
from seqto.datasets.generated import RandomDataset
from seqto.datasets.images import ImageFolder
from seqto.datasets.memory_samples import InMemorySamples
from seqto.datasets.preprocess import ImagePreprocess
from seqto.devices.fake import FakeDevice
from seqto.devices.onnxruntime import OnnxRuntimeDevice
from seqto.devices.tvm_device import TvmDevice
from seqto.identity import identity, settings
from seqto.metrics.agreement import Top1Agreement, TopKAgreement
from seqto.metrics.function import FunctionMetric
from seqto.metrics.ranks import RankDissimilarity
from seqto.models.hub import HubModel
from seqto.models.local import LocalModel
from seqto.pareto.limits import Constraint
from seqto.quantizers.auto import AutoQuantizer
from seqto.quantizers.dynamic import DynamicQuantizer
from seqto.quantizers.static import StaticQuantizer
from seqto.quantizers.weight_only import WeightOnlyQuantizer
from seqto.search.budget import BudgetSearch
from seqto.search.greedy import GreedySearch
from seqto.search.ladder import LadderSearch
from seqto.search.nsga2 import Nsga2Search
from seqto.sensitivity.divergence import DivergenceSensitivity
from seqto.sensitivity.local import LocalSensitivity
from seqto.sensitivity.paper import PaperSensitivity
from seqto.tasks.binary import Binary
from seqto.tasks.classification import Classification
from seqto.tasks.decoded_text import DecodedText
from seqto.tasks.detection import Detection
from seqto.tasks.embedding import Embedding
from seqto.tasks.regression import Regression
from seqto.tasks.segmentation import Segmentation
from seqto.tasks.tokens import Tokens
from seqto.types import content_key

PHOTOS = ImagePreprocess(resize=8, crop=8, scale=1.0, mean=[0] * 3, std=[1] * 3)

PARTS = [
    LocalModel(path="my.onnx"),
    HubModel(repo="owner/name", file="my.onnx"),
    ArrayFile(path="samples.npz"),
    DigitsDataset(),
    RandomDataset(),
    ImageFolder(path="photos", preprocess=PHOTOS),
    PHOTOS,
    InMemorySamples(samples=np.zeros((20, 1))),
    StaticQuantizer(),
    DynamicQuantizer(),
    WeightOnlyQuantizer(),
    AutoQuantizer(),
    DivergenceSensitivity(),
    LocalSensitivity(),
    PaperSensitivity(),
    BudgetSearch(),
    GreedySearch(),
    LadderSearch(),
    Nsga2Search(),
    Binary(),
    Classification(),
    DecodedText(decoding="ctc"),
    Detection(),
    Embedding(),
    Regression(),
    Segmentation(),
    Tokens(),
    Top1Agreement(),
    TopKAgreement(),
    RankDissimilarity(),
    OnnxRuntimeDevice(),
    FakeDevice(),
    TvmDevice(),
    Constraint(),
]
OTHER: dict[type, list[Any]] = {
    bool: [True, False],
    int: [7, 5, 16],
    float: [0.3, 99.0],
    str: [
        *("other", "int8", "minmax", "percentile", "reversed", "on", "NHWC", "BGR", "mse", "a/b"),
        *("uint8", "bicubic", "ndk", "a" * 64, "letterbox", "nbits", "neighbour", "bleu", "last"),
        *("greedy", "char", "json:loads"),
    ],
    list: [["Conv"], ["Gemm", "MatMul"], [1.0, 2.0, 3.0], ["int8", "float32"], ["safe"]],
    dict: [{"kind": "llvm", "a": 1}, {"a": "1"}, {"calibration": "percentile"}],
    type(None): [
        3,
        0.5,
        "other",
        *("host:9190", "mean", "sample", "yolo", "first", "sigmoid", "xywh", "json:loads"),
        "a" * 64,
        ["Conv"],
        ["int8 per tensor"],
        ["x1", "y1", "x2", "y2", "class", "score"],
        {"kind": "llvm"},
        True,
    ],
}


def other_value(part: Any, name: str) -> Any:
    """Return the part with another value of this field, one that its class takes."""
    present = getattr(part, name)
    candidates = [*OTHER.get(type(present), []), *OTHER[type(None)]]
    if dataclasses.is_dataclass(present):
        candidates = [dataclasses.replace(present, seed=1)] if hasattr(present, "seed") else []
        candidates += [dataclasses.replace(PHOTOS, crop=4)]
    for value in candidates:
        if value == present:
            continue
        try:
            return dataclasses.replace(part, **{name: value})
        except Exception:
            continue
    return None


CASES = [
    (part, each.name)
    for part in PARTS
    for each in dataclasses.fields(part)
    if each.init and each.compare
]


def named(value: Any) -> str:
    return value if isinstance(value, str) else type(value).__name__


@pytest.mark.parametrize(("part", "name"), CASES, ids=named)
def test_parts_that_differ_in_one_field_have_other_keys(part: Any, name: str) -> None:
    other = other_value(part, name)
    if other is None:
        assert (type(part).__name__, name) in CLOSED, "there has to be another value to try"
        return
    assert content_key(identity(other)) != content_key(identity(part))
    assert identity(dataclasses.replace(part)) == identity(part)


CLOSED = {("OnnxRuntimeDevice", "provider"), ("DigitsDataset", "path")}
"""Fields for which no other value can be had here."""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (LocalModel(path="a.onnx"), LocalModel(path="b.onnx", name="other")),
        (ArrayFile(path="a.npz"), ArrayFile(path="b.npz")),
        (OnnxRuntimeDevice(workers=1), OnnxRuntimeDevice(workers=2)),
        (InMemorySamples(samples=[1]), InMemorySamples(samples=[2])),
    ],
    ids=named,
)
def test_where_things_are_and_who_measures_identifies_nothing(one: Any, other: Any) -> None:
    assert identity(one) == identity(other)


def test_parts_of_two_classes_are_never_the_same() -> None:
    keys = [content_key(identity(part)) for part in PARTS]
    assert len(set(keys)) == len(keys)


def test_settings_have_what_identifies_nothing_too_but_no_data() -> None:
    assert settings(LocalModel(path="a.onnx"))["path"] == "a.onnx"
    assert settings(OnnxRuntimeDevice(workers=2))["workers"] == 2
    assert "samples" not in settings(InMemorySamples(samples=np.zeros(3)))
    assert settings(StaticQuantizer())["_target_"] == "seqto.quantizers.static.StaticQuantizer"


@dataclasses.dataclass
class Holding:
    """A part of somebody else's."""

    value: Any


class Plain:
    """A part that is no dataclass."""

    def __init__(self, value: Any) -> None:
        self.value, self._calls = value, 0


@pytest.mark.parametrize("kind", [Holding, Plain])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.arange(4), np.arange(4)[::-1]),
        (np.arange(4), np.arange(4.0)),
        (np.arange(4), np.arange(4).reshape(2, 2)),
        (np.array(["a", None], object), np.array(["b", None], object)),
        (b"a", b"b"),
        (Path("a"), Path("b")),
        ({"a": 1}, {"a": 2}),
        ({1, 2}, {1, 3}),
        (functools.partial(max, 1), functools.partial(max, 2)),
        (Holding(1), Holding(2)),
        (Holding, Plain),
        (lambda a, b: 0.1, lambda a, b: 0.2),
        (complex(1, 2), complex(1, 3)),
    ],
)
def test_values_of_any_kind_count(kind: Any, one: Any, other: Any) -> None:
    assert identity(kind(one)) != identity(kind(other))
    assert identity(kind(one)) == identity(kind(one))
    json.dumps(identity(kind(one)))


def test_all_that_an_object_holds_counts() -> None:
    one, other = Plain(1), Plain(1)
    other._calls = 1
    assert identity(one) != identity(other), "what is private may be a setting too"


def test_what_a_property_keeps_does_not_count() -> None:
    class Lazy:
        @functools.cached_property
        def table(self) -> list[int]:
            return [1]

    part = Lazy()
    before = identity(part)
    assert part.table and identity(part) == before


def test_objects_that_hold_themselves_and_modules_have_an_end() -> None:
    part = Plain(np)
    part.me = part  # type: ignore[attr-defined]
    assert json.dumps(identity(part)) == json.dumps(identity(part))
    assert identity(part) != identity(Plain(json))


def users(source: str) -> dict[str, Any]:
    """Return what a user's module of this source defines."""
    space: dict[str, Any] = {"__name__": "users"}
    exec(source, space)
    return space


EDITS = {
    "a value": ("K = 0.1\ndef f(a, b):\n    return K", "0.1", "0.9"),
    "a helper": ("def g(x):\n    return 0.1\ndef f(a, b):\n    return g(a)", "0.1", "0.9"),
    "a helper in a generator": (
        "def g(x):\n    return 0.1\ndef f(a, b):\n    return sum(g(x) for x in a)",
        *("0.1", "0.9"),
    ),
    "a helper class": (
        "class G:\n    def g(self):\n        return 0.1\ndef f(a, b):\n    return G().g()",
        *("0.1", "0.9"),
    ),
    "a class attribute": (
        "class F:\n    k = 0.1\n    def loss(self, a, b):\n        return self.k\nf = F()",
        *("0.1", "0.9"),
    ),
    "a static method": (
        "class F:\n    @staticmethod\n    def k():\n        return 0.1\nf = F()",
        *("0.1", "0.9"),
    ),
    "a property": (
        "class F:\n    @property\n    def k(self):\n        return 0.1\nf = F()",
        *("0.1", "0.9"),
    ),
    "what is cached": (
        "import functools\n@functools.lru_cache\ndef g():\n    return 0.1\n"
        "def f(a, b):\n    return g()",
        *("0.1", "0.9"),
    ),
    "a default": ("def f(a, b, k=0.1):\n    return k", "0.1", "0.9"),
    "a base class": (
        "class B:\n    def k(self):\n        return 0.1\nclass F(B):\n    pass\nf = F()",
        *("0.1", "0.9"),
    ),
}


@pytest.mark.parametrize("edit", EDITS)
def test_whatever_a_user_edits_is_another_part(edit: str) -> None:
    source, old, new = EDITS[edit]
    one, same, other = (
        identity(FunctionMetric(users(text)["f"]))
        for text in (source, source, source.replace(old, new))
    )
    assert one == same != other
    json.dumps(one)


def test_what_is_reached_through_a_module_counts() -> None:
    module = types.ModuleType("users_module")
    exec("W = 0.1\ndef g(x):\n    return W", module.__dict__)
    space = {"__name__": "users", "users_module": module}
    exec("def f(a, b):\n    return users_module.W", space)
    before = identity(space["f"])
    module.W = 0.9  # type: ignore[attr-defined]
    assert identity(space["f"]) != before


def test_what_a_function_holds_counts() -> None:
    def made(threshold: float) -> Any:
        return lambda a, b: float(threshold)

    assert identity(made(0.1)) == identity(made(0.1)) != identity(made(0.2))


def test_functions_that_call_each_other_have_an_end() -> None:
    space: dict[str, Any] = {"__name__": "users"}
    exec("def f(x):\n    return g(x)\n\ndef g(x):\n    return f(x)\n", space)
    json.dumps(identity(space["f"]))


def test_identity_is_the_same_in_every_process() -> None:
    code = (
        "import json\nfrom seqto.identity import identity\n"
        "def f(a):\n    return a in {'x', 'y', 'z'}\n"
        "print(json.dumps(identity([f, {'c', 'a', 'b'}]), sort_keys=True))\n"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(filter(None, sys.path))},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(printed) == 1


def test_what_nothing_identifies_is_unique_and_said_so(caplog: pytest.LogCaptureFixture) -> None:
    part = Holding(each for each in [1])
    assert identity(part) != identity(part), "never taken for another one"
    assert "a study that uses it cannot be resumed" in caplog.text

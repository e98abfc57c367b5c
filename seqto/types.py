"""The data that flows through a study: frozen, plain, one way."""

import enum
import functools
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import onnx

from seqto.errors import ModelError
from seqto.storage import chunks, file_size, is_large

Arrays = Mapping[str, np.ndarray]
"""Arrays by tensor name; the first axis counts samples."""

Ranges = Mapping[str, tuple[float, float]]
"""The smallest and largest value that calibration saw in each activation."""

Table = Sequence[Mapping[str, str | float | bool | None]]
"""Plain rows, ready for JSON."""

SCHEMES = "schemes"
SCREENING = "screening"
TABLES = (SCHEMES, SCREENING)
"""What a study records on the way: full quantizations compared, candidates screened."""

COMMAND = "seqto.command"
"""The tag of a study that has the command line that made it."""

OVERRIDES = "seqto.overrides"
CONSTRAINT = "seqto.constraint"
REGISTERED = "seqto.registered_model"
"""Tags of a study: its command line and its limits as JSON, the name of its registered models."""

FLOAT32 = "float32"
FLOAT16 = "float16"
INT4 = "int4"
INT8 = "int8"
INT16 = "int16"

SHORT = {INT4: "i4", INT8: "i8", INT16: "i16", FLOAT16: "f16", FLOAT32: "f32"}
"""The precisions as they are called in tables."""


NEGLIGIBLE, RUINED = 1e-3, 0.1
"""Divergences below which hardly a prediction changes, and above which many do.

The root of a divergence, in nats, is about five times the share of predictions that change."""


@dataclass(frozen=True)
class TensorSpec:
    """An input of a model as its graph declares it; None stands for a free dimension."""

    name: str
    shape: tuple[int | None, ...]
    dtype: str

    def __str__(self) -> str:
        dims = ", ".join("?" if dim is None else str(dim) for dim in self.shape)
        return f"{self.name!r} {self.dtype}[{dims}]"


@dataclass(frozen=True, eq=False)
class Model:
    """An ONNX model in memory, with the name that users see.

    `session` are options that ONNX Runtime needs to run it as it was meant.
    """

    name: str
    proto: onnx.ModelProto
    session: Mapping[str, str] = field(default_factory=dict)

    def copy_proto(self) -> onnx.ModelProto:
        """Return a copy that may be changed."""
        copy = onnx.ModelProto()
        copy.CopyFrom(self.proto)
        return copy

    @property
    def is_large(self) -> bool:
        """Whether it is too large for one ONNX file."""
        return is_large(self.proto)

    def to_bytes(self) -> bytes:
        """Return the bytes of its ONNX file."""
        if self.is_large:
            raise ModelError(
                f"Model {self.name} is too large for one ONNX file ({self.size / 2**30:.1f} GiB): "
                "save it with seqto.graph.files, and open it with seqto.graph.sessions."
            )
        # Deterministic, so that the same graph always has the same sha256.
        return bytes(self.proto.SerializeToString(deterministic=True))

    def chunks(self) -> Iterator[bytes]:
        """Yield the bytes of its ONNX file, in pieces if one file cannot hold it."""
        if self.is_large:
            yield from chunks(self.proto)
        else:
            yield self.to_bytes()

    @property
    def size(self) -> int:
        """The bytes of its ONNX file; if one file cannot hold it, those that one would have."""
        return file_size(self.proto) if self.is_large else int(self.proto.ByteSize())

    @functools.cached_property
    def digest(self) -> str:
        """The sha256 of its file, and of its session options if it needs any."""
        options = json.dumps(dict(self.session), sort_keys=True) if self.session else ""
        digest = hashlib.sha256()
        for each in self.chunks():
            digest.update(each)
        digest.update(options.encode())
        return digest.hexdigest()


@dataclass(frozen=True)
class Layer:
    """A quantizable node with weights, named by its unique node name.

    `shape` is that of its weight as a matrix: the outputs, and how many values each has. Layers of
    one `group` have to have the same precision; those that read one tensor have the same `weight`.
    """

    name: str
    op_type: str
    weight_bytes: int
    shape: tuple[int, ...] = field(default=(), compare=False)
    group: str = field(default="", compare=False)
    weight: str = field(default="", compare=False)

    @property
    def unit(self) -> str:
        """What gets a precision of its own: its group, or the layer where it is alone."""
        return self.group or self.name


@dataclass(frozen=True)
class LayerScore:
    """How much quantization hurts a layer: `score` ranks, `details` say where it comes from.

    `costs` predict the harm of each precision of this layer, and `sizes` the bytes it then takes;
    both add up over the layers.
    """

    layer: Layer
    score: float
    details: Mapping[str, float] = field(default_factory=dict)
    costs: Mapping[str, float] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Candidate:
    """One choice of precision for every layer.

    `scheme` is how the quantized ones are, where the quantizer has several ways.
    """

    precisions: tuple[tuple[str, str], ...]
    scheme: str = ""

    @classmethod
    def excluding(cls, layers: Iterable[str], excluded: Iterable[str]) -> "Candidate":
        """Return the candidate that leaves these layers in float32 and quantizes the others."""
        left = frozenset(excluded)
        return cls(tuple((name, FLOAT32 if name in left else INT8) for name in sorted(layers)))

    @classmethod
    def of(cls, precisions: Mapping[str, str], scheme: str = "") -> "Candidate":
        """Return the candidate that has these layers in these precisions."""
        return cls(tuple(sorted(precisions.items())), scheme)

    @property
    def excluded(self) -> tuple[str, ...]:
        """The layers left in float32, by name."""
        return tuple(name for name, precision in self.precisions if precision == FLOAT32)

    def by_precision(self) -> dict[str, list[str]]:
        """Return the layers of each precision, by name."""
        layers: dict[str, list[str]] = {}
        for name, precision in self.precisions:
            layers.setdefault(precision, []).append(name)
        return layers

    @property
    def is_mixed(self) -> bool:
        """Whether it has other precisions than int8 and float32."""
        return not {precision for _, precision in self.precisions} <= {INT8, FLOAT32}

    def counted(self, by_precision: bool) -> str:
        """Return how many layers are left in float32 (2 of 9), or are in each precision."""
        if not by_precision:
            return f"{len(self.excluded)} of {len(self.precisions)}"
        groups = self.by_precision()
        return " ".join(
            f"{len(groups[name])}x{short}" for name, short in SHORT.items() if name in groups
        )

    def in_words(self) -> str:
        """Say what precisions its layers have."""
        counted = self.counted(self.is_mixed)
        return f"layers {counted}" if self.is_mixed else f"{counted} layers in float32"

    @property
    def key(self) -> str:
        """The same choice has the same key."""
        return content_key([self.precisions, self.scheme] if self.scheme else self.precisions)


@dataclass(frozen=True, eq=False)
class Samples:
    """Preprocessed inputs by name, with labels where there are any.

    `fixed_batch` is how many at a time the model takes, no more and no fewer, if it says so.
    """

    inputs: Arrays
    ids: tuple[str, ...]
    labels: np.ndarray | None = None
    fixed_batch: int | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def batches(self, size: int) -> Iterator[Arrays]:
        """Yield the inputs in order, at most `size` samples at a time.

        With a fixed batch it is exactly that many, and the last batch is filled up with copies of
        the last sample.
        """
        size = self.fixed_batch or size
        for start in range(0, len(self), size):
            batch = {name: array[start : start + size] for name, array in self.inputs.items()}
            missing = start + size - len(self)
            if self.fixed_batch and missing > 0:
                batch = {
                    name: np.concatenate([array, np.repeat(array[-1:], missing, axis=0)])
                    for name, array in batch.items()
                }
            yield batch

    def first_batches(self, count: int) -> Iterator[Arrays]:
        """Yield the first so many samples, as few at a time as the model takes."""
        return islice(self.batches(1), -(-count // (self.fixed_batch or 1)))


@dataclass(frozen=True, eq=False)
class Splits:
    """Disjoint samples to calibrate and to evaluate on; the fingerprint names their content."""

    calibration: Samples
    evaluation: Samples
    fingerprint: str


@dataclass(frozen=True)
class Kernel:
    """An operation that a device runs; several nodes of a model may run as one."""

    name: str
    op_type: str

    @property
    def is_integer(self) -> bool:
        """Whether it computes with integers."""
        return "Integer" in self.op_type or (
            self.op_type.startswith("Q") and self.op_type != "QuantizeLinear"
        )


@dataclass(frozen=True)
class Latency:
    """Milliseconds of single-sample inference: the median and the 10th and 90th percentile."""

    median_ms: float
    p10_ms: float
    p90_ms: float


@dataclass(frozen=True)
class Measurement:
    """What one candidate scored, the digest of its model, and the session options it needed."""

    metrics: Mapping[str, float]
    model_sha256: str
    session: Mapping[str, str] = field(default_factory=dict)


class TrialState(enum.StrEnum):
    """Where a trial stands; only COMPLETE ones can be on a front."""

    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    FAILED = "FAILED"
    KILLED = "KILLED"


@dataclass(frozen=True)
class Trial:
    """One candidate of a study as the tracker holds it."""

    id: str
    index: int
    candidate: Candidate
    state: TrialState
    metrics: Mapping[str, float] = field(default_factory=dict)
    model_sha256: str = ""
    session: Mapping[str, str] = field(default_factory=dict)
    duplicate_of: int | None = None
    failure: str = ""


@dataclass(frozen=True)
class DataSplit:
    """Samples that a study uses, and what for: `context` is `calibration` or `evaluation`.

    The same digest is the same content; `source` is their path, or else the class that has them.
    """

    name: str
    context: str
    digest: str
    source: str
    samples: int


@dataclass(frozen=True)
class StudyPlan:
    """What a study is about: its key is its content, so the same plan is the same study."""

    key: str
    name: str
    tags: Mapping[str, str]
    params: Mapping[str, str]
    config: str
    data: tuple[DataSplit, ...] = ()


@dataclass(frozen=True)
class Address:
    """Where a person looks at a study: a page, and the command that serves it if one is needed."""

    url: str
    command: str = ""


@dataclass(frozen=True)
class StudyRecord:
    """A study as the tracker holds it: all that the front and the report are made from.

    `baseline` has the float model's own figures under the names of the trials' metrics, `tables`
    what was found on the way, by name.
    """

    id: str
    key: str
    tags: Mapping[str, str]
    baseline: Mapping[str, float]
    scores: tuple[LayerScore, ...]
    trials: tuple[Trial, ...]
    tables: Mapping[str, Table] = field(default_factory=dict)


@dataclass(frozen=True)
class Recommendation:
    """A front member worth taking, and under which name."""

    alias: str
    trial: Trial


@dataclass(frozen=True)
class Version:
    """A version of a registered model, as the registry holds it.

    `trial` is the candidate that it is, with the figures of its study; `data` names what it was
    evaluated on. Versions that seqto did not register have figures of neither.
    """

    name: str
    number: str
    trial: Trial
    aliases: tuple[str, ...] = ()
    data: str = ""
    rolled_back: bool = False

    def __str__(self) -> str:
        return f"version {self.number}"


@dataclass(frozen=True)
class Front:
    """The Pareto-optimal trials of a study, by the first objective, and the recommended ones."""

    objectives: tuple[str, ...]
    members: tuple[Trial, ...]
    recommended: tuple[Recommendation, ...]
    hypervolume: float

    def aliases(self, trial: Trial) -> tuple[str, ...]:
        """Return the names under which this trial is recommended."""
        return tuple(each.alias for each in self.recommended if each.trial.id == trial.id)


def content_key(content: object) -> str:
    """Return a short key of JSON-like content: the same content has the same key."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def sha256(data: bytes) -> str:
    """Return the hex digest of these bytes."""
    return hashlib.sha256(data).hexdigest()

"""Whole studies of a tiny model, in a second, with what a test needs to disturb them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from onnx import helper
from onnx_models import build, weight

from seqto.datasets.digits import DigitsDataset
from seqto.devices.onnxruntime import OnnxRuntimeDevice
from seqto.graph.files import save_model
from seqto.graph.quantized import quantized_nodes
from seqto.measuring.parts import Parts
from seqto.measuring.pool import Pool
from seqto.measuring.record import Assignment
from seqto.measuring.subject import Subject, prepare_subject
from seqto.models.local import LocalModel
from seqto.protocols import Metric, Program, Quantizer, Tracker
from seqto.quantizers.static import StaticQuantizer
from seqto.search.ladder import LadderSearch
from seqto.sensitivity.paper import PaperSensitivity
from seqto.study.explore import Launch
from seqto.study.plan import Study
from seqto.study.run import Outcome, run_study
from seqto.study.settings import StudySettings
from seqto.tasks.classification import Classification
from seqto.types import (
    Candidate,
    Front,
    Kernel,
    Latency,
    Layer,
    Model,
    Ranges,
    Samples,
    StudyRecord,
    Trial,
)
from seqto.workspace import Workspace

CONFIG = "model: chain\n"


def chain(convolutions: int = 5) -> Model:
    """Return `conv0`, `conv1`, ... in a row and the dense layer `fc`, for 8 x 8 digits.

    It was never trained, but its int8 model disagrees with it here and there, and its layers are
    large enough for their integers to be smaller: so there is a trade-off.
    """
    nodes, weights, before, width = [], [], "image", 1
    for index in range(convolutions):
        name = f"conv{index}"
        weights.append(weight(f"{name}_w", 8, width, 3, 3))
        inputs, output = [before, f"{name}_w"], f"{name}_y"
        nodes.append(helper.make_node("Conv", inputs, [output], name, pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [output], [f"{name}_r"], f"{name}_relu"))
        before, width = f"{name}_r", 8
    weights.append(weight("fc_w", 10, 8 * 8 * 8))
    nodes.append(helper.make_node("Flatten", [before], ["flat"], "flatten"))
    nodes.append(helper.make_node("Gemm", ["flat", "fc_w"], ["y"], "fc", transB=1))
    return build(nodes, weights, {"image": ["N", 1, 8, 8]}, {"y": ["N", 10]}, name="chain")


@dataclass
class ProbedDevice:
    """A CPU that counts the models it loads, and may be disturbed as it loads one."""

    name: str = "cpu"
    loads: int = field(default=0, compare=False)
    disturb: Callable[[], None] = field(default=lambda: None, compare=False)
    latencies: dict[int, float] = field(default_factory=dict, compare=False)
    index: int = field(default=-1, compare=False)
    _inner: OnnxRuntimeDevice = field(
        default_factory=lambda: OnnxRuntimeDevice(warmup=0, repeats=1), init=False
    )

    def load(self, model: Model) -> Program:
        """Return the model ready to run."""
        self.loads += 1
        self.disturb()
        program = self._inner.load(model)
        latency = self.latency(model)
        return program if latency is None else _Timed(program, latency)

    def latency(self, model: Model) -> float | None:
        """Return the time that the test chose for so many quantized layers, if it chose one."""
        return self.latencies.get(len(quantized_nodes(model)))

    def describe(self) -> dict[str, str]:
        """Return the facts of the CPU."""
        return dict(self._inner.describe())

    def kernels(self, model: Model) -> Mapping[str, Kernel]:
        """Return what runs each node."""
        return self._inner.kernels(model)


class _Timed:
    """A program with a latency of the test's choice."""

    def __init__(self, program: Program, latency: float) -> None:
        self.run, self.close = program.run, program.close
        self._latency = latency

    def time(self, inputs: object) -> Latency:
        return Latency(self._latency, self._latency, self._latency)


class BlindQuantizer:
    """A quantizer that does not see that one layer is excluded, as ORT may not."""

    name = "static"
    batch_invariant = True

    def __init__(self, inner: Quantizer, layer: str) -> None:
        self._inner, self._layer = inner, layer

    @property
    def precisions(self) -> tuple[str, ...]:
        """Return the inner one's."""
        return self._inner.precisions

    def stored_bytes(self, layer: Layer, precision: str) -> int:
        """Return what the inner one says."""
        return self._inner.stored_bytes(layer, precision)

    def prepare(self, model: Model) -> tuple[Model, tuple[Layer, ...]]:
        """Return what the inner one prepares."""
        return self._inner.prepare(model)

    def calibrate(self, model: Model, samples: Samples) -> Ranges:
        """Return the inner one's ranges."""
        return self._inner.calibrate(model, samples)

    def quantize(self, model: Model, ranges: Ranges, candidate: Candidate) -> Model:
        """Return the model of the candidate, with that layer quantized all the same."""
        names = [name for name, _ in candidate.precisions]
        seen = Candidate.excluding(names, set(candidate.excluded) - {self._layer})
        return self._inner.quantize(model, ranges, seen)


@dataclass(frozen=True)
class Lab:
    """A study's parts, prepared, and a device that a test can disturb."""

    parts: Parts
    subject: Subject
    workspace: Workspace
    device: ProbedDevice

    @classmethod
    def at(
        cls,
        folder: Path,
        model: Model | None = None,
        device: ProbedDevice | None = None,
        **others: object,
    ) -> "Lab":
        """Return a lab of the chain or another model, and other parts, with its files here."""
        path = folder / "chain.onnx"
        path.parent.mkdir(parents=True, exist_ok=True)
        save_model(model or chain(), path)
        device, workspace = device or ProbedDevice(), Workspace(folder / "cache")
        parts = Parts(
            source=LocalModel(path=str(path)),
            dataset=DigitsDataset(calibration_size=10, evaluation_size=200),
            quantizer=StaticQuantizer(),
            sensitivity=PaperSensitivity(samples=4),
            search=LadderSearch(),
            device=device,
            task=Classification(),
        )
        parts = replace(parts, **others)
        return cls(parts, prepare_subject(parts, workspace), workspace, device)

    def with_parts(self, **parts: object) -> "Lab":
        """Return the lab with other parts."""
        return replace(self, parts=replace(self.parts, **parts))

    def with_metric(self, metric: Metric) -> "Lab":
        """Return the lab with another loss."""
        return replace(self.with_parts(metric=metric), subject=replace(self.subject, metric=metric))

    def study(self, tracker: Tracker, **settings: object) -> Study:
        """Return the study with these settings."""
        return Study(self.parts, self.subject, StudySettings(**settings), tracker, self.workspace)

    def launch(
        self, tracker: Tracker, log: list[int], before: Callable[[int], None] = lambda index: None
    ) -> Launch:
        """Return what measures assignments here, logs their numbers and may be disturbed."""

        pool = Pool(self.parts, self.subject, tracker)

        def one(study: str, each: Assignment) -> str:
            before(each.index)
            log.append(each.index)
            self.device.index = each.index
            (trial,) = pool.launch(study, [each])
            return trial

        return lambda study, assignments: [one(study, each) for each in assignments]

    def run(
        self,
        tracker: Tracker,
        log: list[int] | None = None,
        *,
        before: Callable[[int], None] = lambda index: None,
        publish: Callable[[StudyRecord, Front], Sequence[Path]] = lambda record, front: [],
        watch: Callable[[Trial, int, int], None] = lambda trial, done, total: None,
        show: Callable[[StudyRecord, Front], Sequence[Path]] | None = None,
        **settings: object,
    ) -> Outcome:
        """Run the study in this process; `log` gets the numbers of the candidates launched."""
        self.device.index = -1
        launch = self.launch(tracker, [] if log is None else log, before)
        study = self.study(tracker, **settings)
        return run_study(study, launch, watch, publish, CONFIG, show=show)

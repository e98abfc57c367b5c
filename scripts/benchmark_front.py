"""Compare layer orders and searches on EfficientNet-Lite0: the front that each finds, and its cost.

    python scripts/benchmark_front.py [--data ../shared/data]

100 images are used to calibrate and rank, 300 others to evaluate. The ladders evaluate a candidate
every few layers; the searches screen on 16 calibration images and evaluate up to 8 candidates in
full. The first row is what ONNX Runtime makes by itself.
CPU seconds include a row's ranking, search and evaluations, but not what rows share (decoding,
calibration, float outputs, what is learned of layers' inputs), which is printed first.

Predicted / measured is the divergence that the ranking predicts for the evaluated candidates over
that on the evaluation images: the least and the largest quotient of those that lose at most 10 %.
Load is the most that a candidate of the front takes: CPU milliseconds, and megabytes at the peak;
the float model's are printed first.
"""

import argparse
import resource
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from onnxruntime.quantization import CalibrationDataReader, quant_pre_process, quantize_static

from seqto.datasets.images import ImageFolder
from seqto.datasets.preprocess import ImagePreprocess
from seqto.devices.onnxruntime import OnnxRuntimeDevice
from seqto.figures import WORKS
from seqto.graph.load import load_model
from seqto.measuring.evaluate import float_latency, measure
from seqto.measuring.parts import Parts
from seqto.measuring.pool import Pool
from seqto.measuring.subject import Subject, prepare_subject
from seqto.models.local import LocalModel
from seqto.pareto.front import comparable
from seqto.protocols import Quantizer, Search, Sensitivity
from seqto.quantizers.static import StaticQuantizer
from seqto.quantizers.weight_only import WeightOnlyQuantizer
from seqto.search.budget import BudgetSearch
from seqto.search.greedy import GreedySearch
from seqto.search.ladder import LadderSearch
from seqto.search.nsga2 import Nsga2Search
from seqto.search.oneshot import OneShotSearch
from seqto.sensitivity.divergence import DivergenceSensitivity
from seqto.sensitivity.local import LocalSensitivity, Metric
from seqto.sensitivity.paper import PaperSensitivity
from seqto.study.plan import Study
from seqto.study.run import run_study
from seqto.study.settings import StudySettings
from seqto.tasks.classification import Classification
from seqto.tracking.memory import MemoryTracker
from seqto.types import Arrays, Candidate, StudyRecord, Trial, TrialState
from seqto.workspace import Workspace

INT8 = ("int8", "float32")
METRICS: tuple[Metric, ...] = ("sqnr", "mse", "sqnr_delta")
FOUR_BITS = ("int4", "int8", "float16", "float32")
FULL = ("coded", "int8", "float16", "float32")
EVALUATIONS = 8


PLAIN = "ONNX Runtime, per channel"


@dataclass(frozen=True)
class Row:
    """One way to find a front."""

    name: str
    precisions: tuple[str, ...]
    sensitivity: Sensitivity
    search: Search
    quantizer: Quantizer = field(default_factory=StaticQuantizer)


def rows(step: int) -> list[Row]:
    """Return what is compared."""
    paper, byte = PaperSensitivity(), DivergenceSensitivity()
    four, full = (DivergenceSensitivity(precisions=list(each)) for each in (FOUR_BITS, FULL))
    budget = BudgetSearch(evaluations=EVALUATIONS)
    return [
        Row("paper's order", INT8, paper, LadderSearch(step=step)),
        Row("paper's order reversed", INT8, paper, LadderSearch(step=step, order="reversed")),
        Row("random order", INT8, paper, LadderSearch(step=step, order="random")),
        Row("divergence per byte", INT8, byte, LadderSearch(step=step)),
        Row("greedy", INT8, byte, GreedySearch(evaluations=EVALUATIONS)),
        Row("budget", INT8, byte, budget),
        Row("nsga2", INT8, byte, Nsga2Search(evaluations=EVALUATIONS)),
        *(
            Row(f"oneshot, {metric} (QuantuneV2)", INT8, _listed(metric), OneShotSearch())
            for metric in METRICS
        ),
        Row("oneshot, full set", FULL, _listed("mse", FULL), OneShotSearch()),
        Row("budget, down to int4", FOUR_BITS, four, budget),
        Row("budget, full set (default)", FULL, full, budget),
        Row("budget, weights only", FULL, full, budget, WeightOnlyQuantizer()),
    ]


def _listed(metric: Metric, precisions: Sequence[str] = INT8) -> LocalSensitivity:
    """Return QuantuneV2's list of layers by this metric, not per byte."""
    return LocalSensitivity(metric=metric, precisions=list(precisions), per_byte=False)


def main() -> None:
    """Run all rows in one process and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--step", type=int, default=3, help="layers per rung of a ladder")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace(Path(folder))
        shared = parts(options.data, workspace)
        start = cpu_seconds()
        subjects = {"static": prepare_subject(shared, workspace)}
        print(f"shared by the rows: {cpu_seconds() - start:.1f} CPU s")
        other = replace(shared, quantizer=WeightOnlyQuantizer())
        subjects["weight_only"] = prepare_subject(other, workspace)
        loading = float_latency(subjects["static"], shared.device)
        print(f"the float model: {_load(loading)}\n")
        print(
            "| search | precisions | hypervolume | size at 2 % | size at 1 % | evaluated | CPU s "
            "| predicted / measured | load |"
        )
        print("|---|---|---|---|---|---|---|---|---|")
        if options.only in PLAIN:
            print(plain(subjects["static"], shared, options.data))
        for row in rows(options.step):
            if options.only in row.name:
                changed = replace(
                    shared,
                    quantizer=row.quantizer,
                    sensitivity=row.sensitivity,
                    search=row.search,
                    precisions=row.precisions,
                )
                # Each row computes its own rankings, because their cost counts.
                own = Workspace(Path(folder) / row.name)
                subject = subjects[row.quantizer.name]
                study = Study(changed, subject, settings(), MemoryTracker(), own)
                print(measured(row, study), flush=True)


def settings() -> StudySettings:
    """Return how every study is run."""
    return StudySettings(batch=1, register_models=False)


def parts(data: Path, workspace: Workspace) -> Parts:
    """Return what all rows have in common."""
    preprocess = ImagePreprocess(
        resize=256, crop=224, interpolation="bicubic", scale=1.0, mean=[127] * 3, std=[128] * 3
    )
    return Parts(
        source=LocalModel(path=str(data / "models" / "efficientnet-lite0.onnx")),
        dataset=ImageFolder(
            path=str(data / "imagenet-sample"), preprocess=preprocess, workspace=workspace
        ),
        quantizer=StaticQuantizer(),
        sensitivity=PaperSensitivity(),
        search=LadderSearch(),
        device=OnnxRuntimeDevice(repeats=1, warmup=0),
        task=Classification(),
    )


def measured(row: Row, study: Study) -> str:
    """Run one study and return its line of the table."""
    start, wall = cpu_seconds(), time.perf_counter()
    pool = Pool(study.parts, study.subject, study.tracker)
    outcome = run_study(study, pool.launch, lambda *_: None, lambda *_: [], "")
    spent = cpu_seconds() - start
    # Those that were stopped are not on the front.
    trials = comparable(outcome.record.trials)
    cells = [
        row.name,
        " ".join(row.precisions),
        f"{outcome.front.hypervolume:.3f}",
        size_at(trials, 0.02),
        size_at(trials, 0.01),
        str(len(trials)),
        f"{spent:.0f}",
        predicted(outcome.record),
        _load(_most([trial.metrics for trial in outcome.front.members])),
    ]
    print(f"<!-- {row.name}: {time.perf_counter() - wall:.0f} s -->", flush=True)
    return f"| {' | '.join(cells)} |"


def plain(subject: Subject, shared: Parts, data: Path) -> str:
    """Return the line of what `quantize_static` makes, per channel, of the same photos."""
    start = cpu_seconds()
    with tempfile.TemporaryDirectory() as folder:
        source, made = data / "models" / "efficientnet-lite0.onnx", Path(folder) / "int8.onnx"
        prepared = Path(folder) / "prepared.onnx"
        quant_pre_process(source, prepared, skip_symbolic_shape=True)
        reader = Photos(subject.calibration.batches(1))
        quantize_static(prepared, made, reader, per_channel=True)
        found = measure(load_model(made, "plain"), subject, shared.device)
    metrics = found.metrics
    trial = Trial("", 0, Candidate(()), TrialState.COMPLETE, metrics)
    volume = (1 - metrics["accuracy_loss"]) * (1 - metrics["size_ratio"])
    cells = [
        *(PLAIN, "int8", f"{volume:.3f}", size_at([trial], 0.02), size_at([trial], 0.01), "1"),
        *(f"{cpu_seconds() - start:.0f}", "", _load(metrics)),
    ]
    note = f"loss {metrics['accuracy_loss']:.1%} at {metrics['size_ratio']:.3f}"
    return f"<!-- {PLAIN}: {note} -->\n| {' | '.join(cells)} |"


class Photos(CalibrationDataReader):
    """The calibration photos, as ONNX Runtime takes them."""

    def __init__(self, batches: Iterator[Arrays]) -> None:
        self._batches = batches

    def get_next(self) -> Arrays | None:
        """Return the next photo, or None."""
        return next(self._batches, None)


def predicted(record: StudyRecord) -> str:
    """Return the range of predicted over measured divergence, of what was predicted."""
    if any("kl" not in each.details for each in record.scores):
        # Other sensitivities' costs are no divergences.
        return ""
    costs = {each.layer.name: each.costs for each in record.scores}
    quotients = [
        sum(costs[layer][precision] for layer, precision in trial.candidate.precisions)
        / trial.metrics["divergence"]
        for trial in comparable(record.trials)
        if trial.metrics["accuracy_loss"] <= WORKS
        and not trial.candidate.is_float
        and all(precision in costs[layer] for layer, precision in trial.candidate.precisions)
    ]
    return f"{min(quotients):.2f} to {max(quotients):.2f}" if quotients else ""


def _most(every: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = [name for name in ("load_ms", "load_peak_bytes") if all(name in one for one in every)]
    return {name: max(one[name] for one in every) for name in names}


def _load(metrics: Mapping[str, float]) -> str:
    """Write what loading takes, as far as it was measured."""
    parts = [f"{metrics['load_ms']:.0f} ms"] if "load_ms" in metrics else []
    if "load_peak_bytes" in metrics:
        parts.append(f"{metrics['load_peak_bytes'] / 1e6:.0f} MB")
    return ", ".join(parts)


def size_at(trials: Sequence[Trial], loss: float) -> str:
    """Return the smallest size ratio with at most this loss."""
    # A limit of 2 % accepts exactly 6 of 300 images, whatever rounding does.
    fitting = [t.metrics["size_ratio"] for t in trials if t.metrics["accuracy_loss"] <= loss + 1e-9]
    return f"{min(fitting):.3f}" if fitting else "-"


def cpu_seconds() -> float:
    """Return the CPU time of this process and its children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


if __name__ == "__main__":
    main()

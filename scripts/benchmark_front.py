"""Compare layer orders and searches on EfficientNet-Lite0: the front that each finds, and its cost.

    python scripts/benchmark_front.py [--data ../shared/data]

100 images are used to calibrate and rank, 300 others to evaluate. The ladders evaluate a candidate
every few layers; the searches screen on 16 calibration images and evaluate up to 16 candidates in
full.
CPU seconds include a row's ranking, search and evaluations, but not what all rows share (decoding,
calibration, float outputs), which is printed first.
"""

import argparse
import resource
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from seqto.datasets.images import ImageFolder
from seqto.datasets.preprocess import ImagePreprocess
from seqto.devices.onnxruntime import OnnxRuntimeDevice
from seqto.measuring.parts import Parts
from seqto.measuring.pool import Pool
from seqto.measuring.subject import prepare_subject
from seqto.models.local import LocalModel
from seqto.protocols import Quantizer, Search, Sensitivity
from seqto.quantizers.static import StaticQuantizer
from seqto.quantizers.weight_only import WeightOnlyQuantizer
from seqto.search.budget import BudgetSearch
from seqto.search.greedy import GreedySearch
from seqto.search.ladder import LadderSearch
from seqto.search.nsga2 import Nsga2Search
from seqto.sensitivity.divergence import DivergenceSensitivity
from seqto.sensitivity.paper import PaperSensitivity
from seqto.study.plan import Study
from seqto.study.run import run_study
from seqto.study.settings import StudySettings
from seqto.tasks.classification import Classification
from seqto.tracking.memory import MemoryTracker
from seqto.types import Trial
from seqto.workspace import Workspace

INT8 = ("int8", "float32")
FULL = ("int4", "int8", "float16", "float32")


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
    full = DivergenceSensitivity(precisions=list(FULL), samples=16)
    return [
        Row("paper's order", INT8, paper, LadderSearch(step=step)),
        Row("paper's order reversed", INT8, paper, LadderSearch(step=step, order="reversed")),
        Row("random order", INT8, paper, LadderSearch(step=step, order="random")),
        Row("divergence per byte", INT8, byte, LadderSearch(step=step)),
        Row("greedy", INT8, byte, GreedySearch(evaluations=16)),
        Row("budget", INT8, byte, BudgetSearch(evaluations=16)),
        Row("nsga2", INT8, byte, Nsga2Search(evaluations=16)),
        Row("budget, full set", FULL, full, BudgetSearch(evaluations=16)),
        Row(
            "budget, weights only", FULL, full, BudgetSearch(evaluations=16), WeightOnlyQuantizer()
        ),
    ]


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
        subject = prepare_subject(shared, workspace)
        print(f"shared by all rows: {cpu_seconds() - start:.1f} CPU s\n")
        print(
            "| search | precisions | hypervolume | size at 2 % | size at 1 % | evaluated | CPU s |"
        )
        print("|---|---|---|---|---|---|---|")
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
                print(measured(row, Study(changed, subject, settings(), MemoryTracker(), own)))


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
    trials = outcome.record.trials
    cells = [
        row.name,
        " ".join(row.precisions),
        f"{outcome.front.hypervolume:.3f}",
        size_at(trials, 0.02),
        size_at(trials, 0.01),
        str(len(trials)),
        f"{spent:.0f}",
    ]
    print(f"<!-- {row.name}: {time.perf_counter() - wall:.0f} s -->", flush=True)
    return f"| {' | '.join(cells)} |"


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

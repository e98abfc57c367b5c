"""What a study of many candidates costs beside measuring them: to record, to read, to draw, to tag.

    python scripts/benchmark_trials.py [1000 2000] [--layers 50] [--profile read]

No model runs: the candidates and their figures are made up. Each is recorded as a study does it,
in an MLflow store in a sqlite file of its own; then come the parts of the final step. *Read* is all
candidates with their layers and losses, by a new client; *draw* the pictures, report.json and
report.html; *tag* the front's tags, names and colours of the candidates. CPU seconds are of one
process. With --output the files that were drawn stay, to be looked at.
"""

import argparse
import cProfile
import pstats
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from seqto.measuring.batch import Attempt
from seqto.measuring.record import Assignment, Recorder
from seqto.pareto.front import find_front
from seqto.report.writing import write_files
from seqto.tracking.mlflow import MlflowTracker
from seqto.types import (
    Candidate,
    DataSplit,
    Front,
    Layer,
    LayerScore,
    Measurement,
    StudyPlan,
    StudyRecord,
    content_key,
)

SAMPLES = 300
"""As many as the default evaluates on."""

PRECISIONS = ("coded_1", "int8", "float16", "float32")
FLOAT_BYTES = 18_600_000
PARTS = ("record", "read", "draw", "tag", "tag again")


def main() -> None:
    """Print one row for each number of candidates."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("counts", type=int, nargs="*", default=[100, 1000, 2000])
    parser.add_argument("--layers", type=int, default=50)
    parser.add_argument("--profile", choices=PARTS, help="print where this part's time goes")
    parser.add_argument("--output", type=Path, help="keep the files in this folder")
    options = parser.parse_args()
    warm_up(options.layers)
    print("| candidates | record, ms each | read | draw | tag | tag again |")
    print("|---|---|---|---|---|---|")
    for count in options.counts:
        with tempfile.TemporaryDirectory() as folder:
            kept = options.output or Path(folder)
            kept.mkdir(parents=True, exist_ok=True)
            spent = spent_on(count, options.layers, Path(folder), kept, options.profile)
        record, *others = spent.values()
        cells = [f"{count}", f"{1000 * record / count:.1f}", *(f"{each:.2f} s" for each in others)]
        print(f"| {' | '.join(cells)} |", flush=True)


def warm_up(layers: int) -> None:
    """Import everything, and find fonts: that is paid once, whatever the study."""
    with tempfile.TemporaryDirectory() as folder:
        spent_on(3, layers, Path(folder), Path(folder), None)


def spent_on(
    count: int, layers: int, folder: Path, kept: Path, profiled: str | None
) -> dict[str, float]:
    """Return the CPU seconds of each part."""
    uri = f"sqlite:///{folder / 'mlflow.db'}"
    spent: dict[str, float] = {}

    def step(name: str, function: Callable[[], object]) -> object:
        start = time.process_time()
        with profile() if name == profiled and count > 3 else nothing():
            result = function()
        spent[name] = time.process_time() - start
        return result

    tracker = MlflowTracker(uri=uri)
    study = tracker.open_study(plan(), False)
    names = [f"/features/block.{at}/conv/Conv" for at in range(layers)]
    tracker.log_analysis(study, {"size_bytes": FLOAT_BYTES, "accuracy": 0.87}, scores(names))
    step("record", lambda: record(tracker, study, names, count))
    # A client of its own: nothing is in its memory.
    held = step("read", lambda: MlflowTracker(uri=uri).read_study(study))
    assert isinstance(held, StudyRecord) and len(held.trials) == count
    front = find_front(held.trials, ("accuracy_loss", "size_bytes"), held.baseline)
    step("draw", lambda: write_files(kept, held, front, {"cpu": "made up"}, None))
    step("tag", lambda: tag(uri, study, front))
    step("tag again", lambda: tag(uri, study, front))
    return spent


def tag(uri: str, study: str, front: Front) -> None:
    """Write the front to the store."""
    MlflowTracker(uri=uri).log_front(study, front, [])


def plan() -> StudyPlan:
    """Return a study with two data sets."""
    data = tuple(
        DataSplit("made up", each, content_key(each), "here", 100)
        for each in ("calibration", "evaluation")
    )
    kinds = {"seqto.model": "made-up", "seqto.device": "cpu", "seqto.quantization": "static"}
    return StudyPlan(
        content_key("made up"), "made up", kinds, {"model.path": "here"}, "model: x\n", data
    )


def scores(names: list[str]) -> list[LayerScore]:
    """Return a ranking of the layers."""
    return [
        LayerScore(Layer(name, "Conv", 100_000), 1 / (at + 1), {"divergence": 1 / (at + 1)})
        for at, name in enumerate(names)
    ]


def record(tracker: MlflowTracker, study: str, names: list[str], count: int) -> None:
    """Record the candidates as the pool does, and read each as the search does."""
    draw = np.random.RandomState(0)
    recorder = Recorder(tracker, study, "cpu", "x86 CPU, 2 cores")
    for index in range(count):
        assignment, attempt = made_up(names, index, draw)
        trial = recorder.start(assignment)
        recorder.end(trial, assignment, attempt)
        tracker.trial(trial)


def made_up(
    names: list[str], index: int, draw: np.random.RandomState
) -> tuple[Assignment, Attempt]:
    """Return a candidate of random precisions; what is smaller loses more."""
    small = draw.rand()
    chances = np.array([small, 0.5, 0.3, 1 - small])
    chosen = draw.choice(PRECISIONS, len(names), p=chances / chances.sum())
    candidate = Candidate.of(dict(zip(names, map(str, chosen), strict=True)))
    bits = {"coded_1": 2, "int8": 8, "float16": 16, "float32": 32}
    share = float(np.mean([bits[each] for each in chosen])) / 32
    losses = (draw.rand(SAMPLES) < 0.15 * (1 - share) ** 2 * (0.4 + 0.6 * draw.rand())).astype(
        float
    )
    size = FLOAT_BYTES * share
    metrics = {
        "accuracy_loss": float(losses.mean()),
        "divergence": float(losses.mean()) / 3,
        "size_bytes": round(size),
        "size_ratio": size / FLOAT_BYTES,
        "float_share": share,
        "load_ms": 50.0,
        "load_peak_bytes": 7e7,
        "accuracy": 0.87 - float(losses.mean()) / 2,
        "accuracy_drop": float(losses.mean()) / 2,
    }
    measurement = Measurement(metrics, f"{index:064x}", losses=tuple(losses.tolist()))
    return Assignment(index, candidate), Attempt(measurement=measurement)


@contextmanager
def profile() -> Iterator[None]:
    """Print what the block spends its time on."""
    profiler = cProfile.Profile(time.process_time)
    profiler.enable()
    yield
    profiler.disable()
    pstats.Stats(profiler).sort_stats("cumulative").print_stats(60)


@contextmanager
def nothing() -> Iterator[None]:
    """Leave the block alone."""
    yield


if __name__ == "__main__":
    main()

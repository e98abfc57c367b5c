"""The cost of a study on EfficientNet-Lite0, compared with the naive way and bare inference.

    python scripts/benchmark_speed.py [--data ../shared/data] [--growth | --growth-graphs]

All rows use the same images and the same candidates, the rungs of a ladder:
naive    ORT's quantize_static per candidate, which calibrates again; images decoded again;
         batch 1; a session with default threads
floor    bare inference of the candidates' models, loaded once, one thread, images in memory
seqto    the candidates as a study measures them, in one process; also without shared prefixes
study    the whole command with an empty cache: imports, decoding, calibration, ranking, MLflow,
         pictures; and the share of its CPU seconds that is not inference
CPU seconds include all threads and processes. Peak RSS is that of the largest process; in brackets
that of all processes together, with shared memory counted once (Linux only).

--growth has more candidates and images instead; --growth-graphs needs no data, and has more nodes,
layers and candidates of models that cost next to nothing to run: what grows is seqto's own.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnxruntime
from benchmark_front import cpu_seconds, parts
from memory_peak import Peak
from onnxruntime.quantization import CalibrationDataReader, quantize_static
from PIL import Image

from seqto.datasets.preprocess import ImagePreprocess
from seqto.measuring import batch as attempting
from seqto.measuring.batch import attempts
from seqto.measuring.parts import Parts
from seqto.measuring.pool import GROUP, Pool, usable_cores
from seqto.measuring.subject import Subject, prepare_subject
from seqto.search.planned import Planned
from seqto.sensitivity.divergence import DivergenceSensitivity
from seqto.study.plan import Study
from seqto.study.run import run_study as run
from seqto.study.settings import StudySettings
from seqto.tracking.mlflow import MlflowTracker
from seqto.types import Candidate, LayerScore
from seqto.workspace import Workspace

SEED = 0


@dataclass(frozen=True)
class Usage:
    """Time and memory used; `inference` is the CPU seconds inside ONNX Runtime's run."""

    cpu: float
    wall: float
    peak: str = ""
    inference: float = 0.0


class Given(Planned):
    """A search that tries the given candidates."""

    name = "given"
    screens = 0
    evaluations = 0

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self._given = candidates

    def start(self, ranking: Sequence[LayerScore]) -> None:
        """Plan the given candidates."""
        self.plan(self._given)


class Masks(Planned):
    """A search that tries the first `count` choices of layers to leave in float."""

    name = "masks"
    screens = 0
    evaluations = 0

    def __init__(self, count: int) -> None:
        self._count = count

    def start(self, ranking: Sequence[LayerScore]) -> None:
        """Plan as many candidates."""
        names = [each.layer.name for each in ranking]
        self.plan([_mask(names, number) for number in range(self._count)])


def _mask(names: Sequence[str], number: int) -> Candidate:
    """Return the candidate that leaves those layers in float whose bits are set."""
    return Candidate.excluding(names, [name for at, name in enumerate(names) if number >> at & 1])


def main() -> None:
    """Measure all rows in one run and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--step", type=int, default=1, help="layers from candidate to candidate")
    parser.add_argument("--naive", type=int, default=3, help="candidates to measure the naive way")
    parser.add_argument("--growth", action="store_true", help="print the table of growth instead")
    parser.add_argument(
        "--growth-graphs", action="store_true", help="print the table of larger graphs instead"
    )
    parser.add_argument("--part", nargs="+", help="internal: the row to measure in this process")
    options = parser.parse_args()
    if options.part:
        _part(options.part, options.data)
        return
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SEQTO_CACHE"] = str(Path(folder) / "cache")
        os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{folder}/mlflow.db"
        if options.growth:
            _growth(options.data)
        elif options.growth_graphs:
            _growth_of_graphs(options.data)
        else:
            _speed(options)


def _speed(options: argparse.Namespace) -> None:
    shared, subject = _prepared(options.data)
    candidates = rungs(subject, options.step)
    count = len(candidates)
    naive = _in_process(options.data, "naive", str(options.naive))
    floor = _timed(lambda: run_bare(shared, subject, candidates))
    plain = _timed(lambda: run_seqto(shared, subject, candidates, share=False))
    ladder = _timed(lambda: run_seqto(shared, subject, candidates, share=True))
    study = _in_process(options.data, "study")
    rows = [
        ("naive", options.naive, naive),
        ("floor: bare inference", count, floor),
        ("seqto, nothing shared", count, plain),
        ("seqto", count, ladder),
        ("whole study (`search=ladder -m`)", len(subject.layers) + 1, study),
    ]
    unit = naive.cpu / options.naive
    print("\n| | candidates | CPU s each | wall s each | naive CPU | floor CPU | peak RSS |")
    print("|---|---|---|---|---|---|---|")
    for name, number, usage in rows:
        each = usage.cpu / number
        cells = [
            name,
            str(number),
            f"{each:.2f}",
            f"{usage.wall / number:.2f}",
            f"1/{unit / each:.1f}",
            f"{each / (floor.cpu / count):.2f}x",
            usage.peak,
        ]
        print(f"| {' | '.join(cells)} |", flush=True)
    print(f"\nof the study's CPU seconds, {_overhead(study)} are not inference")


def _growth(data: Path) -> None:
    print("\n| candidates | images | CPU s | CPU s each | not inference | wall s | peak RSS |")
    print("|---|---|---|---|---|---|---|")
    for images in (50, 300):
        for count in (10, 50, 200):
            usage = _in_process(data, "grow", str(count), str(images))
            cells = [count, images, f"{usage.cpu:.0f}", f"{usage.cpu / count:.2f}"]
            cells += [_overhead(usage), f"{usage.wall:.0f}", usage.peak]
            print(f"| {' | '.join(map(str, cells))} |", flush=True)


GRAPHS = {
    "nodes": [(20, 1000, 0), (20, 5000, 0)],
    "layers": [(50, 1600, 0), (500, 1600, 0)],
    "candidates": [(12, 40, 200), (12, 40, 2000)],
}
"""Layers, nodes and candidates; without a number it is the default study, with its own search."""


def _growth_of_graphs(data: Path) -> None:
    print("\n| what grows | layers | nodes | candidates | CPU s | not inference | peak RSS |")
    print("|---|---|---|---|---|---|---|")
    for grows, rows in GRAPHS.items():
        for layers, nodes, count in rows:
            usage = _in_process(data, "graph", str(layers), str(nodes), str(count))
            cells = [grows, layers, nodes, count or "default search"]
            cells += [f"{usage.cpu:.1f}", _overhead(usage), usage.peak]
            print(f"| {' | '.join(map(str, cells))} |", flush=True)


def _overhead(usage: Usage) -> str:
    return f"{1 - usage.inference / usage.cpu:.0%}"


def rungs(subject: Subject, step: int, seed: int = SEED) -> list[Candidate]:
    """Return candidates that exclude more and more layers, in a random order of the layers."""
    names = subject.layer_names
    order = [names[at] for at in np.random.RandomState(seed).permutation(len(names))]
    return [Candidate.excluding(names, order[:at]) for at in range(0, len(names) + 1, step)]


def run_bare(shared: Parts, subject: Subject, candidates: Sequence[Candidate]) -> float:
    """Run the candidates' models and nothing else; return the CPU seconds that building took."""
    building = 0.0
    (name,) = subject.samples.inputs
    images = np.asarray(subject.samples.inputs[name])
    for candidate in candidates:
        start = cpu_seconds()
        model = shared.quantizer.quantize(subject.model, subject.ranges, candidate)
        program = shared.device.load(model)
        building += cpu_seconds() - start
        for at in range(0, len(images), subject.batch):
            program.run({name: images[at : at + subject.batch]})
    return building


def run_seqto(
    shared: Parts, subject: Subject, candidates: Sequence[Candidate], share: bool
) -> float:
    """Measure the candidates as a study does, some at a time."""
    kept = attempting.SHARED_BYTES
    attempting.SHARED_BYTES = kept if share else 0
    for at in range(0, len(candidates), GROUP):
        for each in attempts(shared, subject, candidates[at : at + GROUP]):
            assert each.measurement is not None, each.failure
    attempting.SHARED_BYTES = kept
    return 0.0


def run_growing(data: Path, count: int, images: int) -> None:
    """Run a study of `count` candidates on `images` images, with its analysis and MLflow."""
    shared, subject = _prepared(data, images)
    ladders = [rungs(subject, 1, seed)[1:-1] for seed in range(-(-count // 49))]
    search = Given([each for ladder in ladders for each in ladder][:count])
    shared = replace(shared, search=search, sensitivity=DivergenceSensitivity())
    tracker = MlflowTracker()
    with Pool(shared, subject, tracker, usable_cores()) as pool:
        settings = StudySettings(batch=pool.batch, resume=False)
        study = Study(shared, subject, settings, tracker, Workspace.default())
        outcome = run(study, pool.launch, lambda *_: None, lambda *_: [], "")
    assert outcome.measured == count, outcome.measured


def run_graph(layers: int, nodes: int, count: int) -> None:
    """Run a study of a made-up model, of the default's candidates or of `count` given ones."""
    from growing_models import growing_model, growing_samples

    import seqto

    search = Masks(count) if count else None
    result = seqto.tune(
        growing_model(layers, nodes),
        growing_samples(),
        task="classification",
        search=search,
        precisions=["int8", "float32"] if count else None,
        # Fast models are timed for 0.1 s each, which says nothing of how the rest grows.
        overrides=["device.workers=1", "device.repeats=1"],
        progress=False,
    )
    assert not count or len(result.candidates) == count, len(result.candidates)


def run_study(data: Path) -> None:
    """Run the command as a user does."""
    from seqto.cli import main as seqto

    words = ["-m", "model=local", "search=ladder", "dataset=images", "preprocess=efficientnet_lite"]
    words += [f"model.path={(data / 'models' / 'efficientnet-lite0.onnx').resolve()}"]
    words += [f"dataset.path={(data / 'imagenet-sample').resolve()}"]
    sys.argv = ["seqto", *words]
    seqto()


def run_naive(shared: Parts, subject: Subject, data: Path, count: int) -> None:
    """Measure `count` candidates like a script that caches nothing."""
    preprocess: ImagePreprocess = shared.dataset.preprocess  # type: ignore[attr-defined]
    path = data / "models" / "efficientnet-lite0.onnx"
    spec = next(iter(subject.samples.inputs))
    folder = data / "imagenet-sample"

    def decoded(names: Sequence[str]) -> list[dict[str, np.ndarray]]:
        found = []
        for name in names:
            file = folder / name if (folder / name).is_file() else folder / "images" / name
            with Image.open(file) as image:
                array = preprocess.apply(image, preprocess.target(_spec(shared)))
            found.append({spec: array[None]})
        return found

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self._left = iter(decoded(subject.calibration.ids))

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self._left, None)

    for candidate in rungs(subject, 1)[10 : 10 + count]:
        with tempfile.TemporaryDirectory() as temporary:
            target = Path(temporary) / "quantized.onnx"
            quantize_static(
                path, target, Reader(), per_channel=True, nodes_to_exclude=list(candidate.excluded)
            )
            session = onnxruntime.InferenceSession(target, providers=["CPUExecutionProvider"])
            for inputs in decoded(subject.samples.ids):
                session.run(None, inputs)


def _part(words: Sequence[str], data: Path) -> None:
    """Measure one row in this process, and print its CPU, wall and inference seconds.

    What the naive way needs to know, but would not compute itself, comes from a cache.
    """
    kind, *numbers = words
    inference = multiprocessing.Value("d", 0.0)
    _count_inference(inference)
    if kind == "naive":
        onnxruntime.set_default_logger_severity(3)
        shared, subject = _prepared(data)
        before = Usage(cpu_seconds(), time.perf_counter())
        run_naive(shared, subject, data, int(numbers[0]))
    elif kind == "study":
        before = Usage(0.0, time.perf_counter() - _age())
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            # An empty cache, so that everything is computed.
            os.environ["SEQTO_CACHE"] = str(Path(folder) / "cache")
            run_study(data)
    elif kind == "graph":
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            os.environ["SEQTO_CACHE"] = str(Path(folder) / "cache")
            os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{folder}/mlflow.db"
            # Imports and MLflow's tables take the same whatever the graph.
            run_graph(4, 12, 0)
            inference.value = 0.0
            before = Usage(cpu_seconds(), time.perf_counter())
            run_graph(*map(int, numbers))
    else:
        before = Usage(0.0, time.perf_counter() - _age())
        with tempfile.TemporaryDirectory() as folder:
            os.environ["SEQTO_CACHE"] = folder
            run_growing(data, *map(int, numbers))
    wall = time.perf_counter() - before.wall
    print(json.dumps([cpu_seconds() - before.cpu, wall, inference.value]))


def _count_inference(total) -> None:  # type: ignore[no-untyped-def]
    """Sum up the CPU time of every session run, here and in forked processes."""
    run = onnxruntime.InferenceSession.run

    def counted(*arguments, **named):  # type: ignore[no-untyped-def]
        start = time.thread_time()
        try:
            return run(*arguments, **named)
        finally:
            with total.get_lock():
                total.value += time.thread_time() - start

    onnxruntime.InferenceSession.run = counted


def _age() -> float:
    """Return how long ago this process started."""
    ticks = float(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def _prepared(data: Path, images: int = 300) -> tuple[Parts, Subject]:
    workspace = Workspace.default()
    shared = parts(data, workspace)
    shared.dataset.evaluation_size = images  # type: ignore[attr-defined]
    return shared, prepare_subject(shared, workspace)


def _spec(shared: Parts):  # type: ignore[no-untyped-def]
    from seqto.graph.load import input_specs

    return input_specs(shared.source.load())[0]


def _timed(run: Callable[[], float]) -> Usage:
    cpu, wall = cpu_seconds(), time.perf_counter()
    not_counted = run()
    return Usage(cpu_seconds() - cpu - not_counted, time.perf_counter() - wall)


def _in_process(data: Path, *words: str) -> Usage:
    """Measure one row in a separate process; return the time it reports, and its memory."""
    command = [sys.executable, __file__, "--data", str(data.resolve()), "--part", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    peak = Peak(process.pid)
    output, _ = process.communicate()
    largest, together = peak.stop()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{output}")
    cpu, wall, inference = json.loads(output.splitlines()[-1])
    most = f"{largest // 1024} MB ({together // 1024} MB)"
    return Usage(cpu, wall, most, inference)


if __name__ == "__main__":
    main()
